// The safetensors format: an 8-byte length, a JSON header, then the tensors' bytes without holes.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "regard/io/mapped_file.h"
#include "regard/io/tensor.h"

namespace regard::io {

// Move-only. The tensors' bytes are the mapped file. Everything is checked on opening: what find() returns
// lies inside the file, has the size that its type and shape say and overlaps nothing. White space before the
// header's `{` is accepted (as other readers do) and never written.
class Safetensors {
 public:
  // Throws Error: not a safetensors file, or damaged.
  static Safetensors open(const std::filesystem::path& path);
  // `bytes` must outlive the result; `source` names them in errors.
  static Safetensors parse(std::span<const std::byte> bytes, std::string source);

  Safetensors(Safetensors&&) = default;
  Safetensors& operator=(Safetensors&&) = default;

  const std::string& source() const { return source_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }  // in the order of the header
  const Tensor* find(std::string_view name) const;                 // null where absent
  const Tensor& require(std::string_view name) const;              // throws Error where absent
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Oddities that do no harm, such as unknown fields, in words.
  const std::vector<std::string>& notes() const { return notes_; }
  const MappedFile* file() const { return file_.get(); }  // null for parse()

 private:
  Safetensors() = default;

  std::unique_ptr<MappedFile> file_;
  std::string source_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::string> notes_;
};

// Writes atomically (atomic_file.h). Tensors are stored in the given order, the first one at a multiple of 64
// bytes. Throws std::invalid_argument for a repeated name, a block type or bytes that do not fit the shape;
// Error for the disk.
void write_safetensors(const std::filesystem::path& path, std::span<const Tensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace regard::io
