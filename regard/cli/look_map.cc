#include "regard/cli/look_map.h"

#include <algorithm>
#include <cmath>

#include "regard/cli/cells.h"
#include "regard/cli/look_print.h"
#include "regard/lens/units.h"

namespace regard::cli {
namespace {

// A head's map with the names of its units; pooled ones are called by the position of their first.
Cells named(const PooledMap& map, const lens::Report& report) {
  Cells cells;
  for (int64_t c = 0; c < map.size; ++c) {
    cells.rows.push_back(map.pool == 1 ? report.units[static_cast<size_t>(c)].text
                                       : std::to_string(c * map.pool));
  }
  cells.columns = cells.rows;
  cells.values = map.cells;
  if (report.focus.unit >= 0) cells.chosen = report.focus.unit / map.pool;
  return cells;
}

}  // namespace

PooledMap pooled_map(const lens::Recording& recording, const lens::Report& report, int64_t layer,
                     int64_t head, int64_t at_most) {
  const lens::RecordedLayer& kept = recording.at_layer(layer);
  const auto n = static_cast<int64_t>(report.units.size());
  PooledMap map;
  map.pool = std::max<int64_t>(1, (n + at_most - 1) / std::max<int64_t>(at_most, 1));
  map.size = (n + map.pool - 1) / map.pool;
  map.cells.assign(static_cast<size_t>(map.size * map.size), 0.0F);
  for (int64_t u = 0; u < n; ++u) {
    std::vector<float> row = lens::unit_row(kept, head, report.units, u);
    if (report.special_hidden) lens::hide_special(row, report.units);
    for (int64_t c = 0; c < n; ++c) {
      float& cell = map.cells[static_cast<size_t>(u / map.pool * map.size + c / map.pool)];
      cell = std::max(cell, row[static_cast<size_t>(c)]);
      map.largest = std::max(map.largest, cell);
    }
  }
  return map;
}

void print_map(std::ostream& out, const Terminal& terminal, const lens::Recording& recording,
               const lens::Report& report, int64_t layer, int64_t head) {
  const PooledMap map = pooled_map(recording, report, layer, head, columns_that_fit(terminal.width));
  Line title(terminal);
  title.add("Layer " + std::to_string(layer) + ", head " + std::to_string(head), Ink::title);
  for (const lens::HeadReport& cell : report.grid) {
    if (cell.layer != layer || cell.head != head) continue;
    title.add("  " + std::string(lens::name(cell.label)), label_ink(cell.label));
    if (cell.label != lens::Label::mixed) title.add(" " + weight_text(cell.label_score));
    title.add(", entropy " + weight_text(cell.entropy) + " nats (" +
                  std::to_string(std::lround(cell.entropy_share * 100)) + "% of an even spread)",
              Ink::dim);
  }
  out << '\n' << title.text() << '\n';
  Line how(terminal);
  how.add(map.pool == 1 ? "  each row: the word that looks; its columns: the words it looks at"
                        : "  each cell: the largest weight among " + std::to_string(map.pool) + " x " +
                              std::to_string(map.pool) + (report.words ? " words" : " tokens"),
          Ink::dim);
  out << how.text() << '\n';
  for (const std::string& line : cell_lines(terminal, named(map, report), 0, map.pool == 1))
    out << line << '\n';
  out << scale_line(terminal, map.largest) << '\n';
}

}  // namespace regard::cli
