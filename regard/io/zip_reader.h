// Reads the members of a ZIP archive that lies in memory, by libzip. For sources of this room only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace regard::io {

struct ZipMember {
  std::string name;
  std::vector<std::byte> contents;  // inflated, its CRC checked
};

// All members in file order. Throws Error for anything damaged, encrypted or compressed by a method other
// than deflate, and, before inflating, where the sizes add up to more than `limit` or to more than deflate
// can have packed.
std::vector<ZipMember> read_zip(std::span<const std::byte> file, const std::string& source, uint64_t limit);

}  // namespace regard::io
