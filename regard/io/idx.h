// IDX, the format of MNIST and its kin: a magic number, sizes, bytes (http://yann.lecun.com/exdb/mnist, "the
// IDX file format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace regard::io {

// Unsigned bytes of any shape, row-major: labels [N], grey pictures [N, height, width], coloured ones [N,
// height, width, 3].
struct Idx {
  std::vector<int64_t> shape;
  std::vector<uint8_t> values;
  bool operator==(const Idx&) const = default;
};

// Plain or gzip, as the bytes say. Throws Error: not such a file, elements of another type than unsigned
// bytes, sizes that do not fit the number of bytes, more than `limit` bytes unpacked.
Idx parse_idx(std::span<const std::byte> bytes, const std::string& source,
              uint64_t limit = uint64_t{1} << 30);
Idx read_idx(const std::filesystem::path& path);

// Throws std::invalid_argument where the values do not fit the shape or a size does not fit 32 bits.
std::vector<std::byte> encode_idx(const Idx& idx);
// Atomically; packed by gzip where the name ends in ".gz".
void write_idx(const std::filesystem::path& path, const Idx& idx);

}  // namespace regard::io
