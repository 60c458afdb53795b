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

// A map [rows, columns], scaled without smoothing to high x wide pixels.
void draw(io::Canvas& canvas, const std::vector<float>& cells, int64_t rows, int64_t columns, float largest,
          int64_t left, int64_t top, int64_t high, int64_t wide) {
  for (int64_t y = 0; y < high; ++y) {
    for (int64_t x = 0; x < wide; ++x) {
      const float value = cells[static_cast<size_t>(y * rows / high * columns + x * columns / wide)];
      canvas.point(left + x, top + y, heat_color(largest > 0 ? value / largest : 0));
    }
  }
}

}  // namespace

void write_map_png(const std::filesystem::path& path, const PooledMap& map) {
  write_cells_png(path, map.cells, map.size, map.size);
}

void write_cells_png(const std::filesystem::path& path, const std::vector<float>& cells, int64_t rows,
                     int64_t columns) {
  const int64_t scale = std::max<int64_t>(1, kPicture / std::max<int64_t>({rows, columns, 1}));
  io::Canvas canvas(scale * columns, scale * rows);
  const float largest = cells.empty() ? 0.0F : *std::max_element(cells.begin(), cells.end());
  draw(canvas, cells, rows, columns, largest, 0, 0, canvas.height(), canvas.width());
  io::write_png(path, canvas.width(), canvas.height(), canvas.rgb());
}

void write_grid_png(const std::filesystem::path& path, const lens::Report& report) {
  const auto rows = static_cast<int64_t>(report.kept_layers.size());
  const int64_t step = kThumbnail + kGap;
  io::Canvas canvas(report.heads * step + kGap, rows * step + kGap);
  for (size_t i = 0; i < report.grid.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    draw(canvas, report.grid[i].block_max, report.blocks, report.blocks, 1.0F,
         kGap + at % report.heads * step, kGap + at / report.heads * step, kThumbnail, kThumbnail);
  }
  io::write_png(path, canvas.width(), canvas.height(), canvas.rgb());
}

}  // namespace regard::cli
