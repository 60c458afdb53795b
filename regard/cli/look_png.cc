#include <algorithm>
#include <cmath>

#include "regard/cli/look_map.h"
#include "regard/cli/terminal.h"
#include "regard/io/canvas.h"
#include "regard/io/png.h"

namespace regard::cli {
namespace {

constexpr int64_t kPicture = 960;   // pixels a side of one head's picture, about
constexpr int64_t kThumbnail = 64;  // pixels a side of a head in the picture of all
constexpr int64_t kGap = 4;

// A square map [size, size], scaled without smoothing to `pixels` a side.
void draw(io::Canvas& canvas, const std::vector<float>& cells, int64_t size, float largest, int64_t left,
          int64_t top, int64_t pixels) {
  for (int64_t y = 0; y < pixels; ++y) {
    for (int64_t x = 0; x < pixels; ++x) {
      const float value = cells[static_cast<size_t>(y * size / pixels * size + x * size / pixels)];
      canvas.point(left + x, top + y, heat_color(largest > 0 ? value / largest : 0));
    }
  }
}

}  // namespace

void write_map_png(const std::filesystem::path& path, const PooledMap& map) {
  const int64_t scale = std::max<int64_t>(1, kPicture / std::max<int64_t>(map.size, 1));
  const int64_t pixels = scale * map.size;
  io::Canvas canvas(pixels, pixels);
  draw(canvas, map.cells, map.size, map.largest, 0, 0, pixels);
  io::write_png(path, canvas.width(), canvas.height(), canvas.rgb());
}

void write_grid_png(const std::filesystem::path& path, const lens::Report& report) {
  const auto rows = static_cast<int64_t>(report.kept_layers.size());
  const int64_t step = kThumbnail + kGap;
  io::Canvas canvas(report.heads * step + kGap, rows * step + kGap);
  for (size_t i = 0; i < report.grid.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    draw(canvas, report.grid[i].block_max, report.blocks, 1.0F, kGap + at % report.heads * step,
         kGap + at / report.heads * step, kThumbnail);
  }
  io::write_png(path, canvas.width(), canvas.height(), canvas.rgb());
}

}  // namespace regard::cli
