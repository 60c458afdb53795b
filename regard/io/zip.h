// The part of the ZIP format that NPZ files use: stored and deflated members, no zip64. For sources of this
// room only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "regard/io/atomic_file.h"

namespace regard::io {

struct ZipMember {
  std::string name;
  bool deflated = false;
  uint32_t crc = 0;
  uint64_t size = 0;                 // inflated
  std::span<const std::byte> bytes;  // as they lie in the file
};

// All members, by the central directory. Throws Error for anything damaged, encrypted, overlapping or of
// another kind, and where the inflated sizes add up to more than `limit`.
std::vector<ZipMember> list_zip(std::span<const std::byte> file, const std::string& source, uint64_t limit);

// The member's contents, checked against its size and CRC.
std::vector<std::byte> inflate_member(const ZipMember& member, const std::string& source);
void check_crc(std::span<const std::byte> contents, const ZipMember& member, const std::string& source);

class ZipWriter {
 public:
  // Writes through `file`, which the caller commits after finish().
  ZipWriter(AtomicFile& file, std::string shown_path) : file_(file), shown_path_(std::move(shown_path)) {}

  // One member whose contents are `head` and then `body`.
  void add(const std::string& name, std::span<const std::byte> head, std::span<const std::byte> body,
           bool deflated);
  void finish();

 private:
  void write(const std::string& bytes);

  AtomicFile& file_;
  std::string shown_path_;
  std::string directory_;
  uint64_t offset_ = 0;
  uint32_t members_ = 0;
};

}  // namespace regard::io
