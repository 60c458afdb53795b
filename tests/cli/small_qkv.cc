#include "small_qkv.h"

#include <cmath>
#include <vector>

#include "regard/io/npz.h"

namespace regard::cli::testing {

void write_small_qkv(const std::filesystem::path& path, int64_t tokens) {
  const auto values = [&](double phase) {
    std::vector<float> out(static_cast<size_t>(2 * tokens * 8));
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(std::sin(phase + 0.7 * static_cast<double>(i)));
    }
    return out;
  };
  const std::vector<float> q = values(0), k = values(1), v = values(2);
  const std::vector<io::Tensor> arrays = {io::view("q", {2, tokens, 8}, std::span<const float>(q)),
                                          io::view("k", {2, tokens, 8}, std::span<const float>(k)),
                                          io::view("v", {2, tokens, 8}, std::span<const float>(v))};
  io::write_npz(path, arrays);
}

}  // namespace regard::cli::testing
