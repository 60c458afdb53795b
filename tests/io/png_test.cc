#include "regard/io/png.h"

#include <gtest/gtest.h>
#include <png.h>

#include <cstring>
#include <stdexcept>

#include "tests/io/files.h"

namespace regard::io {
namespace {

TEST(Png, PixelsComeBack) {
  constexpr int64_t width = 37, height = 5;
  std::vector<uint8_t> rgb(width * height * 3);
  for (size_t i = 0; i < rgb.size(); ++i) rgb[i] = static_cast<uint8_t>(i * 7);
  const TemporaryFolder folder;
  write_png(folder / "x.png", width, height, rgb);

  png_image image;
  std::memset(&image, 0, sizeof(image));
  image.version = PNG_IMAGE_VERSION;
  ASSERT_TRUE(png_image_begin_read_from_file(&image, (folder / "x.png").c_str())) << image.message;
  EXPECT_EQ(image.width, width);
  EXPECT_EQ(image.height, height);
  image.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> got(PNG_IMAGE_SIZE(image));
  ASSERT_TRUE(png_image_finish_read(&image, nullptr, got.data(), 0, nullptr)) << image.message;
  EXPECT_EQ(got, rgb);
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Png, RefusesSizesThatDoNotFit) {
  const std::vector<uint8_t> rgb(12);
  EXPECT_THROW(encode_png(2, 3, rgb), std::invalid_argument);
  EXPECT_THROW(encode_png(0, 2, {}), std::invalid_argument);
  EXPECT_THROW(encode_png(-2, -2, rgb), std::invalid_argument);
  EXPECT_THROW(encode_png(int64_t{1} << 40, 1, rgb), std::invalid_argument);
}

}  // namespace
}  // namespace regard::io
