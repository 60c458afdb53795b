#include "regard/cli/look_map.h"

#include <algorithm>
#include <cmath>

#include "regard/cli/look_print.h"
#include "regard/lens/units.h"
#include "regard/text/utf8.h"

namespace regard::cli {
namespace {

constexpr int64_t kLabelCells = 14;
constexpr int64_t kHeaderRows = 7;

// A text written downwards: one character a row, combining marks with their letter.
std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> out;
  text::for_each_code_point(text, [&](char32_t, size_t at, size_t length) {
    const std::string one = text.substr(at, length);
    if (!out.empty() && text::display_width(out.back() + one) == text::display_width(out.back())) {
      out.back() += one;
    } else {
      out.push_back(one);
    }
  });
  return out;
}

void print_column_names(std::ostream& out, const Terminal& terminal, const lens::Report& report,
                        const PooledMap& map) {
  std::vector<std::vector<std::string>> columns;
  size_t rows = 1;
  for (int64_t c = 0; c < map.size; ++c) {
    // Pooled columns are called by the position of their first unit.
    const std::string name =
        map.pool == 1 ? report.units[static_cast<size_t>(c)].text : std::to_string(c * map.pool);
    columns.push_back(characters(terminal.show(name)));
    if (columns.back().size() > kHeaderRows) {
      columns.back().resize(kHeaderRows);
      columns.back().back() = terminal.unicode ? "…" : "~";
    }
    rows = std::max(rows, columns.back().size());
  }
  for (size_t r = 0; r < rows; ++r) {
    Line line(terminal);
    line.cell("", kLabelCells + 1);
    for (const auto& column : columns) {
      const size_t skip = rows - column.size();  // names stand on the map
      line.cell(r >= skip ? column[r - skip] : "", 2, text::Align::left, Ink::dim);
    }
    out << line.text() << '\n';
  }
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
  const PooledMap map = pooled_map(recording, report, layer, head, (terminal.width - kLabelCells - 1) / 2);
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
  print_column_names(out, terminal, report, map);
  const double largest = map.largest > 0 ? map.largest : 1;
  for (int64_t r = 0; r < map.size; ++r) {
    Line line(terminal);
    const bool chosen = report.focus.unit / map.pool == r;
    const std::string name =
        map.pool == 1 ? report.units[static_cast<size_t>(r)].text : std::to_string(r * map.pool);
    line.cell(name, kLabelCells, text::Align::right, chosen ? Ink::bold : Ink::plain).add(" ");
    for (int64_t c = 0; c < map.size; ++c) {
      line.heat(map.cells[static_cast<size_t>(r * map.size + c)] / largest, 2);
    }
    // Beside a short map: what the row looks at most.
    if (map.pool == 1 && line.left() >= 16) {
      const auto begin = map.cells.begin() + r * map.size;
      const auto most = std::max_element(begin, begin + map.size);
      line.add("  " + weight_text(*most) + " " + report.units[static_cast<size_t>(most - begin)].text,
               Ink::dim);
    }
    out << line.text() << '\n';
  }
  Line scale(terminal);
  scale.cell("", kLabelCells + 1).add("0 ", Ink::dim);
  for (int step = 0; step <= 10; ++step) scale.heat(step / 10.0, 2);
  scale.add(" " + weight_text(map.largest) + ", the largest", Ink::dim);
  out << scale.text() << '\n';
}

}  // namespace regard::cli
