#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/e5_file.h"
#include "regard/io/gguf.h"
#include "regard/io/model_folder.h"
#include "regard/layer/weight.h"

namespace regard::model {

// The tensors of a model's file or files, as what layers take. Large matrices stay where they are, in the
// mapped file: float32 ones become tensors over that memory, others are expanded row by row on use. What is
// made here keeps the file open. Every shape is checked; errors are io::Error and name the tensor, the file,
// what it holds and what was expected.
class WeightFile {
 public:
  explicit WeightFile(std::shared_ptr<const io::ModelFolder> folder);
  explicit WeightFile(std::shared_ptr<const io::Gguf> gguf);
  explicit WeightFile(std::shared_ptr<const io::E5File> file);

  bool has(std::string_view name) const { return find_(name) != nullptr; }
  const std::string& source() const { return source_; }
  int64_t bytes() const { return bytes_; }  // of all tensors

  // [rows, columns]. order, if not empty: row r is row order[r] of the file.
  layer::Weight matrix(const std::string& name, int64_t rows, int64_t columns,
                       std::vector<int64_t> order = {}) const;
  // Rows [begin, begin + rows) of a matrix [all_rows, columns].
  layer::Weight part(const std::string& name, int64_t all_rows, int64_t begin, int64_t rows,
                     int64_t columns) const;
  // The same of a matrix that the file holds transposed, as [columns, all_rows].
  layer::Weight transposed_part(const std::string& name, int64_t all_rows, int64_t begin, int64_t rows,
                                int64_t columns) const;
  // [size] float32, copied.
  at::Tensor vector(const std::string& name, int64_t size) const;

 private:
  const io::Tensor& require(const std::string& name, const std::vector<int64_t>& shape) const;
  at::Tensor dense(const io::Tensor& tensor) const;

  std::shared_ptr<const void> file_;
  std::function<const io::Tensor*(std::string_view)> find_;
  std::string source_;
  int64_t bytes_ = 0;
};

}  // namespace regard::model
