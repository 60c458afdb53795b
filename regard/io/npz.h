// NumPy's NPY and NPZ files, written so that numpy.load reads them, and read back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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

// Move-only. Arrays come in C order (one saved in Fortran order is turned). A single NPY file is one array
// named "". Members that are not arrays of a type above (strings, objects, big-endian, unsigned 16 to 64
// bits, complex) are left out and skipped() says why.
class Npz {
 public:
  // Throws Error: neither NPZ nor NPY, damaged, or larger than `limit` bytes when inflated. Members are
  // copied into memory; a single NPY file stays mapped.
  static Npz open(const std::filesystem::path& path, uint64_t limit = uint64_t{1} << 34);
  // `bytes` must outlive the result; `source` names them in errors.
  static Npz parse(std::span<const std::byte> bytes, std::string source, uint64_t limit = uint64_t{1} << 34);

  Npz(Npz&&) = default;
  Npz& operator=(Npz&&) = default;

  const std::string& source() const { return source_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;     // null where absent
  const Tensor& require(std::string_view name) const;  // throws Error: why, and which arrays are there
  const std::map<std::string, std::string, std::less<>>& skipped() const {
    return skipped_;
  }  // name -> reason

 private:
  Npz() = default;
  void add(std::string name, std::span<const std::byte> npy);

  std::unique_ptr<MappedFile> file_;
  std::string source_;
  std::vector<std::vector<std::byte>> owned_;  // what was inflated or turned
  std::vector<Tensor> tensors_;
  std::map<std::string, std::string, std::less<>> skipped_;
};

}  // namespace regard::io
