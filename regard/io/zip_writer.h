// The part of the ZIP format that NPZ files use: stored and deflated members, no zip64. For sources of this
// room only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "regard/io/atomic_file.h"

namespace regard::io {

class ZipWriter {
 public:
  // Writes through `file`, which the caller commits after finish().
  ZipWriter(AtomicFile& file, std::string shown_path) : file_(file), shown_path_(std::move(shown_path)) {}

  // Throws Error where a member or the whole would reach 4 GiB. One member whose contents are `head` and then
  // `body`.
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
