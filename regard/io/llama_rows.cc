// GGUF's permuted rows of Llama models, declared in gguf.h.
#include <cstring>
#include <stdexcept>

#include "regard/io/gguf.h"

namespace regard::io {

std::vector<int64_t> unpermuted_rows(int64_t rows, int64_t heads) {
  if (heads < 1 || rows < 0 || rows % (2 * heads) != 0) {
    throw std::invalid_argument("unpermuted_rows: " + std::to_string(rows) + " rows and " +
                                std::to_string(heads) +
                                " heads; the rows must be a multiple of twice the heads");
  }
  const int64_t head = rows / heads;
  const int64_t half = head / 2;
  std::vector<int64_t> source(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t component = r % head;
    source[static_cast<size_t>(r)] = r - component + component % half * 2 + component / half;
  }
  return source;
}

std::vector<std::byte> unpermute_rows(const Tensor& matrix, int64_t heads) {
  // A tensor without columns may claim any number of rows.
  if (matrix.bytes.empty()) return {};
  const std::vector<int64_t> source = unpermuted_rows(matrix.rows(), heads);
  const int64_t row = matrix.row_bytes();
  if (static_cast<int64_t>(matrix.bytes.size()) != matrix.rows() * row) {
    throw std::invalid_argument("unpermute_rows: tensor " + matrix.name +
                                " has other bytes than its shape says");
  }
  std::vector<std::byte> result(matrix.bytes.size());
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    std::memcpy(result.data() + r * row, matrix.bytes.data() + source[static_cast<size_t>(r)] * row,
                static_cast<size_t>(row));
  }
  return result;
}

}  // namespace regard::io
