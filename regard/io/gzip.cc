#include "regard/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>

#include "regard/io/error.h"

namespace regard::io {
namespace {

constexpr int kGzipOnly = 16;  // zlib: window bits + 16 asks for gzip's header and checksum
constexpr size_t kPart = size_t{1} << 16;

Bytef* zlib_bytes(const std::byte* bytes) {
  return const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes));  // NOLINT: zlib does not write there
}

struct Inflater {
  z_stream stream{};
  Inflater() {
    if (inflateInit2(&stream, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

struct Deflater {
  z_stream stream{};
  Deflater() {
    if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzipOnly, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK)
      throw std::bad_alloc();
  }
  ~Deflater() { deflateEnd(&stream); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;
};

// zlib counts in 32 bits.
void feed(z_stream& stream, std::span<const std::byte>& left) {
  if (stream.avail_in > 0 || left.empty()) return;
  const size_t count = std::min(left.size(), size_t{1} << 30);
  stream.next_in = zlib_bytes(left.data());
  stream.avail_in = static_cast<uInt>(count);
  left = left.subspan(count);
}

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
}

std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::string_view source, uint64_t limit) {
  if (!is_gzip(bytes)) fail(source, "not a gzip file: it does not begin with 1f 8b");
  Inflater inflater;
  z_stream& stream = inflater.stream;
  std::vector<std::byte> out;
  std::array<std::byte, kPart> part;
  std::span<const std::byte> left = bytes;
  for (;;) {
    feed(stream, left);
    stream.next_out = zlib_bytes(part.data());
    stream.avail_out = static_cast<uInt>(part.size());
    const int state = inflate(&stream, Z_NO_FLUSH);
    const size_t made = part.size() - stream.avail_out;
    if (out.size() + made > limit)
      fail(source, "unpacks to more than " + std::to_string(limit) + " bytes, the limit");
    out.insert(out.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(made));
    const bool more = stream.avail_in > 0 || !left.empty();
    if (state == Z_STREAM_END) {
      if (!more) return out;
      if (inflateReset(&stream) != Z_OK) throw std::bad_alloc();  // another member
      continue;
    }
    if (state == Z_MEM_ERROR) throw std::bad_alloc();
    if (state != Z_OK && state != Z_BUF_ERROR)
      fail(source, "damaged gzip data: " + std::string(stream.msg != nullptr ? stream.msg : "unknown"));
    if (made == 0 && !more) fail(source, "the gzip data is cut off");
  }
}

std::vector<std::byte> gzip(std::span<const std::byte> bytes) {
  Deflater deflater;
  z_stream& stream = deflater.stream;
  gz_header header{};
  header.os = 255;  // unknown: the bytes do not tell where they were made
  deflateSetHeader(&stream, &header);
  std::vector<std::byte> out;
  std::array<std::byte, kPart> part;
  std::span<const std::byte> left = bytes;
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    feed(stream, left);
    stream.next_out = zlib_bytes(part.data());
    stream.avail_out = static_cast<uInt>(part.size());
    state = deflate(&stream, left.empty() ? Z_FINISH : Z_NO_FLUSH);
    if (state == Z_STREAM_ERROR) throw std::bad_alloc();
    out.insert(out.end(), part.begin(), part.end() - static_cast<std::ptrdiff_t>(stream.avail_out));
  }
  return out;
}

}  // namespace regard::io
