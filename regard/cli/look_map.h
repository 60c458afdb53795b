#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "regard/lens/recording.h"
#include "regard/lens/report.h"

namespace regard::cli {

// A head's map in cells of `pool` units a side, each the largest weight in it. Made row by row, so a long
// text costs no L x L memory.
struct PooledMap {
  int64_t size = 0;  // cells a side
  int64_t pool = 1;
  float largest = 0;
  std::vector<float> cells;  // [size, size]
};
PooledMap pooled_map(const lens::Recording& recording, const lens::Report& report, int64_t layer,
                     int64_t head, int64_t at_most);

// Pictures without letters: one head's map, or the block maps of all heads (rows layers, columns heads).
void write_map_png(const std::filesystem::path& path, const PooledMap& map);
void write_cells_png(const std::filesystem::path& path, const std::vector<float>& cells, int64_t rows,
                     int64_t columns);  // [rows, columns], any weights
void write_grid_png(const std::filesystem::path& path, const lens::Report& report);

}  // namespace regard::cli
