// GGUF, versions 2 and 3, little-endian: typed metadata and (quantised) tensors in one file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "regard/io/mapped_file.h"
#include "regard/io/tensor.h"

namespace regard::io {

// The numbers are the file format's own.
enum class GgufType : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
};
std::string_view gguf_type_name(GgufType type);  // "UINT8", ...

// One metadata value: a scalar (count 1) or an array of `count` elements of `type`.
struct GgufValue {
  GgufType type;  // never `array`: arrays of arrays are refused
  bool is_array;
  uint64_t count;
  std::span<const std::byte> bytes;  // numbers and bools, little-endian, unaligned; empty for strings
  std::vector<std::string_view>
      strings;  // strings, pointing into the file; any bytes, not checked to be UTF-8
};

// Move-only; tensors and strings point into the mapped file. Tensor shapes are in NumPy's order (GGUF's,
// reversed).
class Gguf {
 public:
  // Throws Error: not GGUF, damaged, or of a kind that is not supported.
  static Gguf open(const std::filesystem::path& path);
  // `bytes` must outlive the result; `source` names them in errors.
  static Gguf parse(std::span<const std::byte> bytes, std::string source);

  Gguf(Gguf&&) = default;
  Gguf& operator=(Gguf&&) = default;

  const std::string& source() const { return source_; }
  uint32_t version() const { return version_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;     // null where absent
  const Tensor& require(std::string_view name) const;  // throws Error where absent
  const MappedFile* file() const { return file_.get(); }

  const std::vector<std::string_view>& keys() const { return keys_; }  // in file order
  const GgufValue* value(std::string_view key) const;                  // null where absent
  bool has(std::string_view key) const { return value(key) != nullptr; }

  // Typed getters: Error naming the key, what it holds and what is allowed. Any integer type serves as an
  // int; a float may be F32 or F64; an array's elements are all checked and the error names the index.
  int64_t require_int(std::string_view key, int64_t lowest, int64_t highest) const;
  double require_float(std::string_view key) const;
  bool require_bool(std::string_view key) const;
  std::string_view require_string(std::string_view key) const;
  const std::vector<std::string_view>& require_strings(std::string_view key) const;
  std::vector<int64_t> require_ints(std::string_view key, int64_t lowest, int64_t highest) const;
  std::vector<float> require_floats(std::string_view key) const;

  // The same, with a value for an absent key. A key that is there with another type is still an error.
  int64_t int_or(std::string_view key, int64_t fallback, int64_t lowest, int64_t highest) const;
  double float_or(std::string_view key, double fallback) const;
  bool bool_or(std::string_view key, bool fallback) const;
  std::string_view string_or(std::string_view key, std::string_view fallback) const;

 private:
  Gguf() = default;
  const GgufValue& typed(std::string_view key, bool array, std::string_view allowed) const;

  std::unique_ptr<MappedFile> file_;
  std::string source_;
  uint32_t version_ = 0;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
  std::vector<std::string_view> keys_;
  std::unordered_map<std::string_view, GgufValue> values_;
};

// GGUF files of Llama models store the rows of the Q and K projections permuted, so that RoPE turns
// neighbouring components (2i, 2i + 1); the published layout turns (i, i + half a head). Row r of the
// published matrix is row unpermuted_rows(rows, heads)[r] of the file. `heads`: query heads for Q, key-value
// heads for K. Throws std::invalid_argument unless rows is a multiple of 2 * heads.
std::vector<int64_t> unpermuted_rows(int64_t rows, int64_t heads);

// The matrix [rows, columns] with its rows in the published order, still in its (block) type: rows are moved
// whole.
std::vector<std::byte> unpermute_rows(const Tensor& matrix, int64_t heads);

}  // namespace regard::io
