#include "regard/io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "regard/io/byte_reader.h"
#include "regard/io/error.h"

namespace regard::io {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kDirectoryEnd = 0x06054b50;
constexpr uint64_t kDirectoryEndSize = 22;
constexpr uint64_t kLimit = 0xffffffff;  // sizes and offsets have 32 bits; this value means "see zip64"
constexpr uint64_t kMaxRatio = 1032;     // deflate cannot do better
constexpr size_t kChunk = size_t{1} << 26;

uint32_t crc_of(uint32_t crc, std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

template <class T>
T peek(std::span<const std::byte> file, uint64_t offset) {
  T value;
  std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

// The offset of the record that ends the file; a comment of at most 65,535 bytes may follow it.
uint64_t find_directory_end(std::span<const std::byte> file, const std::string& source) {
  if (file.size() >= kDirectoryEndSize) {
    const uint64_t last = file.size() - kDirectoryEndSize;
    const uint64_t first = last > 65535 ? last - 65535 : 0;
    for (uint64_t at = last + 1; at-- > first;) {
      if (peek<uint32_t>(file, at) == kDirectoryEnd && peek<uint16_t>(file, at + 20) == last - at) return at;
    }
  }
  fail(source, "not a zip file, or cut short: its directory is missing");
}

ZipMember read_member(ByteReader& reader, std::span<const std::byte> file, const std::string& source) {
  const std::string entry = "an entry of the zip directory";
  if (reader.number<uint32_t>(entry) != kDirectoryEntry) reader.refuse("the zip directory is damaged");
  reader.take(4, entry);  // versions
  const auto flags = reader.number<uint16_t>(entry);
  const auto method = reader.number<uint16_t>(entry);
  reader.take(4, entry);  // time and date
  ZipMember member;
  member.crc = reader.number<uint32_t>(entry);
  const uint64_t stored = reader.number<uint32_t>(entry);
  member.size = reader.number<uint32_t>(entry);
  const auto name_size = reader.number<uint16_t>(entry);
  const auto extra_size = reader.number<uint16_t>(entry);
  const auto comment_size = reader.number<uint16_t>(entry);
  reader.take(8, entry);  // disk and attributes
  const uint64_t offset = reader.number<uint32_t>(entry);
  member.name = reader.text(name_size, entry);
  reader.take(uint64_t{extra_size} + comment_size, entry);

  const std::string what = "member " + io::quoted(member.name);
  if (member.name.find('\0') != std::string::npos) reader.refuse(what + " has a NUL in its name");
  if ((flags & 1) != 0) reader.refuse(what + " is encrypted");
  if (method != 0 && method != 8) {
    reader.refuse(what + " is compressed by method " + std::to_string(method) +
                  "; stored and deflated are read");
  }
  if (stored == kLimit || member.size == kLimit || offset == kLimit) {
    reader.refuse(what + " has 4 GiB or more (zip64), which Regard does not read");
  }
  member.deflated = method == 8;
  if (member.deflated ? member.size / kMaxRatio > stored : member.size != stored) {
    reader.refuse(what + " claims " + std::to_string(member.size) + " bytes from " + std::to_string(stored));
  }

  // The name and extra field before the contents have lengths of their own; the sizes there may be absent.
  ByteReader local(file, source);
  local.take(offset, what);
  if (local.number<uint32_t>(what) != kLocalHeader)
    local.refuse(what + " has no header where the directory says");
  local.take(22, what);
  const auto local_name = local.number<uint16_t>(what);
  const auto local_extra = local.number<uint16_t>(what);
  if (local.text(local_name, what) != member.name) local.refuse(what + " has another name in its own header");
  local.take(local_extra, what);
  member.bytes = local.take(stored, what);
  return member;
}

struct InflateEnd {
  void operator()(z_stream* stream) const { ::inflateEnd(stream); }
};
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

std::vector<ZipMember> list_zip(std::span<const std::byte> file, const std::string& source, uint64_t limit) {
  const uint64_t end = find_directory_end(file, source);
  const auto count = peek<uint16_t>(file, end + 10);
  const uint64_t size = peek<uint32_t>(file, end + 12);
  const uint64_t start = peek<uint32_t>(file, end + 16);
  if (peek<uint16_t>(file, end + 4) != 0 || peek<uint16_t>(file, end + 8) != count) {
    fail(source, "a zip file in several parts, which Regard does not read");
  }
  if (count == 0xffff || start == kLimit) fail(source, "a zip64 file, which Regard does not read");
  if (start > end || size > end - start) fail(source, "the zip directory lies outside the file");

  std::vector<ZipMember> members;
  members.reserve(count);
  ByteReader reader(file.first(start + size), source);
  reader.take(start, "the zip directory");
  uint64_t total = 0;
  uint64_t stored = 0;
  for (uint32_t i = 0; i < count; ++i) {
    members.push_back(read_member(reader, file, source));
    total += members.back().size;
    stored += members.back().bytes.size();
    if (total > limit) {
      fail(source,
           "the contents are larger than " + std::to_string(limit) + " bytes, the limit set for them");
    }
    // Members that share their bytes would inflate a small file to any size.
    if (stored > start) fail(source, "members of the zip file overlap");
  }
  return members;
}

std::vector<std::byte> inflate_member(const ZipMember& member, const std::string& source) {
  const std::string what = "member " + io::quoted(member.name);
  z_stream stream{};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw Error("zlib: decompression cannot be set up");
  const std::unique_ptr<z_stream, InflateEnd> guard(&stream);
  // One byte more than announced shows contents that are too long.
  std::vector<std::byte> out(member.size + 1);
  uint64_t filled = 0;
  std::span<const std::byte> rest = member.bytes;
  int state = Z_OK;
  while (state == Z_OK && filled < out.size()) {
    if (stream.avail_in == 0) feed(stream, rest);
    const size_t room = std::min<size_t>(out.size() - filled, kChunk);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
    stream.avail_out = static_cast<uInt>(room);
    state = ::inflate(&stream, Z_NO_FLUSH);
    filled += room - stream.avail_out;
  }
  if (state != Z_STREAM_END || filled != member.size) {
    fail(source, what + " is damaged: it does not inflate to its " + std::to_string(member.size) + " bytes");
  }
  out.resize(member.size);
  check_crc(out, member, source);
  return out;
}

void check_crc(std::span<const std::byte> contents, const ZipMember& member, const std::string& source) {
  if (crc_of(0, contents) != member.crc) {
    fail(source, "member " + io::quoted(member.name) + " is damaged: its CRC is wrong");
  }
}

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
