// PNG pictures, written by libpng.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace regard::io {

// rgb: [height, width, 3], 8 bits a channel, sRGB. Throws std::invalid_argument for a size below 1, above
// 65,535 or one that does not fit rgb.
std::vector<std::byte> encode_png(int64_t width, int64_t height, std::span<const uint8_t> rgb);

// The same into a file, atomically.
void write_png(const std::filesystem::path& path, int64_t width, int64_t height,
               std::span<const uint8_t> rgb);

}  // namespace regard::io
