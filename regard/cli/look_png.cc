#include <algorithm>
#include <cmath>

#include "regard/cli/look_map.h"
#include "regard/cli/terminal.h"
#include "regard/io/png.h"

namespace regard::cli {
namespace {

constexpr int64_t kPicture = 960;   // pixels a side of one head's picture, about
constexpr int64_t kThumbnail = 64;  // pixels a side of a head in the picture of all
constexpr int64_t kGap = 4;

struct Canvas {
  int64_t width;
  int64_t height;
  std::vector<uint8_t> rgb;

  Canvas(int64_t width, int64_t height)
      : width(width), height(height), rgb(static_cast<size_t>(3 * width * height), 255) {}

  // A square map [size, size], scaled without smoothing to `pixels` a side.
  void draw(const std::vector<float>& cells, int64_t size, float largest, int64_t left, int64_t top,
            int64_t pixels) {
    for (int64_t y = 0; y < pixels; ++y) {
      for (int64_t x = 0; x < pixels; ++x) {
        const float value = cells[static_cast<size_t>(y * size / pixels * size + x * size / pixels)];
        const auto color = heat_color(largest > 0 ? value / largest : 0);
        std::copy(color.begin(), color.end(), rgb.begin() + 3 * ((top + y) * width + left + x));
      }
    }
  }
};

}  // namespace

void write_map_png(const std::filesystem::path& path, const PooledMap& map) {
  const int64_t scale = std::max<int64_t>(1, kPicture / std::max<int64_t>(map.size, 1));
  const int64_t pixels = scale * map.size;
  Canvas canvas(pixels, pixels);
  canvas.draw(map.cells, map.size, map.largest, 0, 0, pixels);
  io::write_png(path, canvas.width, canvas.height, canvas.rgb);
}

void write_grid_png(const std::filesystem::path& path, const lens::Report& report) {
  const auto rows = static_cast<int64_t>(report.kept_layers.size());
  const int64_t step = kThumbnail + kGap;
  Canvas canvas(report.heads * step + kGap, rows * step + kGap);
  for (size_t i = 0; i < report.grid.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    canvas.draw(report.grid[i].block_max, report.blocks, 1.0F, kGap + at % report.heads * step,
                kGap + at / report.heads * step, kThumbnail);
  }
  io::write_png(path, canvas.width, canvas.height, canvas.rgb);
}

}  // namespace regard::cli
