// A picture in memory: boxes, lines and small letters, for what write_png() writes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace regard::io {

using Color = std::array<uint8_t, 3>;  // red, green, blue

// Everything outside the picture is left out without a word. (0, 0) is the upper left pixel.
class Canvas {
 public:
  // Throws std::invalid_argument for a size below 1 or above 65,535.
  Canvas(int64_t width, int64_t height, Color background = {255, 255, 255});

  int64_t width() const { return width_; }
  int64_t height() const { return height_; }
  std::span<const uint8_t> rgb() const { return rgb_; }  // [height, width, 3]

  void point(int64_t x, int64_t y, Color color);
  void box(int64_t x, int64_t y, int64_t width, int64_t height, Color color);
  // `thickness` pixels wide, with square ends.
  void line(double x0, double y0, double x1, double y1, Color color, int64_t thickness = 1);

  // Letters of 5 x 7 dots, `scale` pixels a dot, 6 dots a letter. (x, y) is the upper left corner; upwards:
  // the text runs from (x, y) up. ASCII; every other code point is shown as a question mark.
  void text(int64_t x, int64_t y, std::string_view text, Color color, int64_t scale = 2,
            bool upwards = false);
  static int64_t text_width(std::string_view text, int64_t scale = 2);
  static int64_t text_height(int64_t scale = 2) { return 7 * scale; }

 private:
  int64_t width_;
  int64_t height_;
  std::vector<uint8_t> rgb_;
};

}  // namespace regard::io
