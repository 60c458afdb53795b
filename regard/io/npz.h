// NumPy's NPY and NPZ files, written so that numpy.load reads them, and read back.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/mapped_file.h"
#include "regard/io/tensor.h"

namespace regard::io {

enum class Compression { none, deflate };

// Writes one array, or a zip of them ("name" becomes the member "name.npy"). Types: f16, f32, f64, i8, u8,
// i16, i32, i64, boolean. Atomic. Throws std::invalid_argument for other types, a bad or repeated name or
// bytes that do not fit the shape, Error for the disk and for a zip of 4 GiB or more (no zip64).
void write_npy(const std::filesystem::path& path, const Tensor& array);
void write_npz(const std::filesystem::path& path, std::span<const Tensor> arrays,
               Compression compression = Compression::deflate);

// Move-only; arrays are in C order and may also be a single NPY file (its name is then ""). Members of other
// types (strings, objects, big-endian, unsigned 16 to 64 bits, complex) and Fortran order are refused by
// name.
class Npz {
 public:
  // Throws Error: neither NPZ nor NPY, damaged, or larger than `limit` bytes when inflated.
  static Npz open(const std::filesystem::path& path, uint64_t limit = uint64_t{1} << 34);
  // `bytes` must outlive the result; `source` names them in errors.
  static Npz parse(std::span<const std::byte> bytes, std::string source, uint64_t limit = uint64_t{1} << 34);

  Npz(Npz&&) = default;
  Npz& operator=(Npz&&) = default;

  const std::string& source() const { return source_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;     // null where absent
  const Tensor& require(std::string_view name) const;  // throws Error, naming the arrays that are there

 private:
  Npz() = default;

  std::unique_ptr<MappedFile> file_;
  std::string source_;
  std::vector<std::vector<std::byte>> inflated_;
  std::vector<Tensor> tensors_;
};

}  // namespace regard::io
