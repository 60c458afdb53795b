// gzip (RFC 1952) in memory, by zlib.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace regard::io {

bool is_gzip(std::span<const std::byte> bytes);

// The contents of one or more gzip members, one behind the other. Throws Error naming `source` for what is
// cut, damaged, followed by other bytes or would unpack to more than `limit` bytes.
std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::string_view source,
                              uint64_t limit = uint64_t{1} << 30);

// Packed as tightly as zlib can, without a name or a time: the same bytes for the same contents (of one
// zlib).
std::vector<std::byte> gzip(std::span<const std::byte> bytes);

}  // namespace regard::io
