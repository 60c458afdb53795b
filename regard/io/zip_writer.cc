#include "regard/io/zip_writer.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "regard/io/error.h"

namespace regard::io {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kDirectoryEnd = 0x06054b50;
constexpr uint64_t kLimit = 0xffffffff;  // sizes and offsets have 32 bits; this value means "see zip64"
constexpr size_t kChunk = size_t{1} << 26;

uint32_t crc_of(uint32_t crc, std::span<const std::byte> bytes) {
  if (bytes.empty()) return crc;  // zlib takes a null pointer for the wish to start anew
  return static_cast<uint32_t>(::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

struct DeflateEnd {
  void operator()(z_stream* stream) const { ::deflateEnd(stream); }
};

// zlib counts in 32 bits: hands the next part of `rest` to the stream.
void feed(z_stream& stream, std::span<const std::byte>& rest) {
  const size_t count = std::min(rest.size(), kChunk);
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(rest.data()));
  stream.avail_in = static_cast<uInt>(count);
  rest = rest.subspan(count);
}

std::vector<std::byte> deflated(std::span<const std::byte> head, std::span<const std::byte> body) {
  z_stream stream{};
  if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw Error("zlib: compression cannot be set up");
  }
  const std::unique_ptr<z_stream, DeflateEnd> guard(&stream);
  std::vector<std::byte> out;
  std::vector<std::byte> buffer(size_t{1} << 18);
  for (const bool last : {false, true}) {
    std::span<const std::byte> rest = last ? body : head;
    do {
      feed(stream, rest);
      const int flush = last && rest.empty() ? Z_FINISH : Z_NO_FLUSH;
      do {
        stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
        stream.avail_out = static_cast<uInt>(buffer.size());
        ::deflate(&stream, flush);
        out.insert(out.end(), buffer.begin(), buffer.end() - stream.avail_out);
      } while (stream.avail_out == 0);
    } while (!rest.empty());
  }
  return out;
}

template <class T>
void append(std::string& text, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  text.append(bytes, sizeof(T));
}

}  // namespace

void ZipWriter::write(const std::string& bytes) {
  file_.write(bytes);
  offset_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::span<const std::byte> head, std::span<const std::byte> body,
                    bool compress) {
  const uint64_t size = uint64_t{head.size()} + body.size();
  const std::vector<std::byte> packed = compress ? deflated(head, body) : std::vector<std::byte>();
  const uint64_t stored = compress ? packed.size() : size;
  if (size >= kLimit || stored >= kLimit || offset_ + stored + 1024 + name.size() >= kLimit ||
      members_ >= 0xfffe) {
    fail(shown_path_,
         "would hold 4 GiB or more, which a plain zip file cannot; write fewer arrays into one file");
  }
  const uint32_t crc = crc_of(crc_of(0, head), body);
  const bool ascii = std::all_of(name.begin(), name.end(), [](char c) { return c >= 0; });

  std::string fields;  // shared by the local header and the directory
  append<uint16_t>(fields, 20);
  append<uint16_t>(fields, ascii ? 0 : 0x800);  // 0x800: the name is UTF-8
  append<uint16_t>(fields, compress ? 8 : 0);
  append<uint16_t>(fields, 0);     // time
  append<uint16_t>(fields, 0x21);  // 1 January 1980: the same arrays give the same file
  append<uint32_t>(fields, crc);
  append<uint32_t>(fields, static_cast<uint32_t>(stored));
  append<uint32_t>(fields, static_cast<uint32_t>(size));
  append<uint16_t>(fields, static_cast<uint16_t>(name.size()));
  append<uint16_t>(fields, 0);  // extra field

  append(directory_, kDirectoryEntry);
  append<uint16_t>(directory_, 20);
  directory_ += fields;
  append<uint16_t>(directory_, 0);  // comment
  append<uint16_t>(directory_, 0);  // disk
  append<uint16_t>(directory_, 0);  // internal attributes
  append<uint32_t>(directory_, 0);  // external attributes
  append<uint32_t>(directory_, static_cast<uint32_t>(offset_));
  directory_ += name;

  std::string local;
  append(local, kLocalHeader);
  write(local + fields + name);
  if (compress) {
    file_.write(packed);
  } else {
    file_.write(head);
    file_.write(body);
  }
  offset_ += stored;
  ++members_;
}

void ZipWriter::finish() {
  const uint64_t start = offset_;
  if (start + directory_.size() >= kLimit)
    fail(shown_path_, "would hold 4 GiB or more, which a plain zip file cannot");
  std::string end;
  append(end, kDirectoryEnd);
  append<uint32_t>(end, 0);  // disks
  append<uint16_t>(end, static_cast<uint16_t>(members_));
  append<uint16_t>(end, static_cast<uint16_t>(members_));
  append<uint32_t>(end, static_cast<uint32_t>(directory_.size()));
  append<uint32_t>(end, static_cast<uint32_t>(start));
  append<uint16_t>(end, 0);  // comment
  write(directory_ + end);
}

}  // namespace regard::io
