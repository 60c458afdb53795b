#include "regard/io/png.h"

#include <png.h>

#include <csetjmp>
#include <stdexcept>
#include <string>

#include "regard/io/atomic_file.h"
#include "regard/io/error.h"

namespace regard::io {
namespace {

constexpr int64_t kMaxSide = 65535;

// libpng returns from an error by longjmp, which must not cross a C++ object that has a destructor: this
// function holds none.
bool encode(png_structp png, png_infop info, std::vector<std::byte>* out, int64_t width, int64_t height,
            const uint8_t* rgb) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_write_fn(
      png, out,
      [](png_structp writer, png_bytep bytes, size_t count) {
        auto* result = static_cast<std::vector<std::byte>*>(png_get_io_ptr(writer));
        const auto* first = reinterpret_cast<const std::byte*>(bytes);
        result->insert(result->end(), first, first + count);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), 8,
               PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_sRGB(png, info, PNG_sRGB_INTENT_PERCEPTUAL);
  png_write_info(png, info);
  for (int64_t y = 0; y < height; ++y) png_write_row(png, rgb + y * width * 3);
  png_write_end(png, info);
  return true;
}

}  // namespace

std::vector<std::byte> encode_png(int64_t width, int64_t height, std::span<const uint8_t> rgb) {
  if (width < 1 || height < 1 || width > kMaxSide || height > kMaxSide ||
      rgb.size() != static_cast<size_t>(width * height * 3)) {
    throw std::invalid_argument("encode_png: a picture of " + std::to_string(width) + " x " +
                                std::to_string(height) + " with " + std::to_string(rgb.size()) +
                                " bytes; sides from 1 to 65535 and 3 bytes a pixel are allowed");
  }
  png_structp png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, [](png_structp, const char*) {});
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  std::vector<std::byte> out;
  const bool done = info != nullptr && encode(png, info, &out, width, height, rgb.data());
  png_destroy_write_struct(&png, &info);
  if (!done) throw Error("PNG: the picture could not be encoded");
  return out;
}

void write_png(const std::filesystem::path& path, int64_t width, int64_t height,
               std::span<const uint8_t> rgb) {
  write_file_atomically(path, encode_png(width, height, rgb));
}

}  // namespace regard::io
