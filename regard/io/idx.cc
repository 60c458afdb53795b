#include "regard/io/idx.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "regard/io/atomic_file.h"
#include "regard/io/byte_reader.h"
#include "regard/io/error.h"
#include "regard/io/gzip.h"
#include "regard/io/mapped_file.h"
#include "regard/io/tensor.h"

namespace regard::io {
namespace {

constexpr int kUnsignedByte = 0x08;

std::string_view type_of(int code) {
  switch (code) {
    case 0x09:
      return "signed bytes";
    case 0x0B:
      return "16-bit integers";
    case 0x0C:
      return "32-bit integers";
    case 0x0D:
      return "32-bit floats";
    case 0x0E:
      return "64-bit floats";
    default:
      return "an unknown type";
  }
}

// Big-endian, whatever this machine is.
uint32_t big_endian(ByteReader& reader, std::string_view what) {
  uint32_t value = 0;
  for (const std::byte byte : reader.take(4, what)) value = value << 8 | std::to_integer<uint32_t>(byte);
  return value;
}

Idx parse_plain(std::span<const std::byte> bytes, const std::string& source) {
  ByteReader reader(bytes, source);
  const uint32_t magic = big_endian(reader, "the magic number");
  if (magic >> 16 != 0) reader.refuse("not an IDX file: its first two bytes are not 0");
  const int type = static_cast<int>(magic >> 8 & 0xFF);
  if (type != kUnsignedByte)
    reader.refuse("its elements are " + std::string(type_of(type)) + " (code " + std::to_string(type) +
                  "); only unsigned bytes (8) are read");
  Idx idx;
  const uint32_t dimensions = magic & 0xFF;
  if (dimensions == 0) reader.refuse("it has no dimensions");
  for (uint32_t i = 0; i < dimensions; ++i)
    idx.shape.push_back(big_endian(reader, "size " + std::to_string(i)));
  int64_t count = 0;
  if (!count_elements(idx.shape, count)) reader.refuse("its sizes are too large");
  if (static_cast<uint64_t>(count) != reader.left())
    reader.refuse("its sizes ask for " + std::to_string(count) + " bytes, but " +
                  std::to_string(reader.left()) + " follow");
  const auto values = reader.take(reader.left(), "the values");
  idx.values.resize(values.size());
  std::transform(values.begin(), values.end(), idx.values.begin(),
                 [](std::byte byte) { return std::to_integer<uint8_t>(byte); });
  return idx;
}

}  // namespace

// Unpacked once: a file may unpack to itself.
Idx parse_idx(std::span<const std::byte> bytes, const std::string& source, uint64_t limit) {
  return is_gzip(bytes) ? parse_plain(gunzip(bytes, source, limit), source) : parse_plain(bytes, source);
}

Idx read_idx(const std::filesystem::path& path) {
  const MappedFile file = MappedFile::open(path);
  return parse_idx(file.bytes(), path.string());
}

std::vector<std::byte> encode_idx(const Idx& idx) {
  int64_t count = 0;
  if (idx.shape.empty() || idx.shape.size() > 255 || !count_elements(idx.shape, count) ||
      static_cast<uint64_t>(count) != idx.values.size())
    throw std::invalid_argument("encode_idx: the " + std::to_string(idx.values.size()) +
                                " values do not fit the shape");
  std::vector<std::byte> out = {std::byte{0}, std::byte{0}, std::byte{kUnsignedByte},
                                static_cast<std::byte>(idx.shape.size())};
  for (const int64_t size : idx.shape) {
    if (size > INT64_C(0xFFFFFFFF))
      throw std::invalid_argument("encode_idx: the size " + std::to_string(size) + " does not fit 32 bits");
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<std::byte>(size >> shift & 0xFF));
  }
  const auto values = std::as_bytes(std::span(idx.values));
  out.insert(out.end(), values.begin(), values.end());
  return out;
}

void write_idx(const std::filesystem::path& path, const Idx& idx) {
  std::vector<std::byte> bytes = encode_idx(idx);
  if (path.extension() == ".gz") bytes = gzip(bytes);
  write_file_atomically(path, bytes);
}

}  // namespace regard::io
