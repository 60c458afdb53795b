#include "regard/cli/cells.h"

#include <algorithm>

#include "regard/cli/look_print.h"
#include "regard/text/utf8.h"

namespace regard::cli {
namespace {

constexpr int64_t kLabelCells = 14;
constexpr size_t kHeaderRows = 7;
constexpr int64_t kGap = 3;  // between blocks

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

void add_column_names(const Terminal& terminal, const Cells& cells, int64_t width,
                      std::vector<std::string>& lines) {
  std::vector<std::vector<std::string>> columns;
  size_t rows = 1;
  for (const std::string& name : cells.columns) {
    columns.push_back(characters(terminal.show(name)));
    if (columns.back().size() > kHeaderRows) {
      columns.back().resize(kHeaderRows);
      columns.back().back() = terminal.unicode ? "…" : "~";
    }
    rows = std::max(rows, columns.back().size());
  }
  for (size_t r = 0; r < rows; ++r) {
    Line line(terminal, width);
    line.cell("", kLabelCells + 1);
    for (const auto& column : columns) {
      const size_t skip = rows - column.size();  // names stand on the map
      line.cell(r >= skip ? column[r - skip] : "", 2, text::Align::left, Ink::dim);
    }
    lines.push_back(line.text());
  }
}

}  // namespace

float Cells::largest() const {
  return values.empty() ? 0.0F : *std::max_element(values.begin(), values.end());
}

Cells fewer_columns(const Cells& cells, int64_t at_most) {
  const auto count = static_cast<int64_t>(cells.columns.size());
  const int64_t pool = std::max<int64_t>(1, (count + at_most - 1) / std::max<int64_t>(at_most, 1));
  if (pool == 1) return cells;
  Cells out;
  out.rows = cells.rows;
  out.chosen = cells.chosen;
  const int64_t columns = (count + pool - 1) / pool;
  for (int64_t c = 0; c < columns; ++c) out.columns.push_back(std::to_string(c * pool));
  out.values.assign(cells.rows.size() * static_cast<size_t>(columns), 0.0F);
  for (size_t r = 0; r < cells.rows.size(); ++r) {
    for (int64_t c = 0; c < count; ++c) {
      float& cell = out.values[r * static_cast<size_t>(columns) + static_cast<size_t>(c / pool)];
      cell = std::max(cell, cells.values[r * static_cast<size_t>(count) + static_cast<size_t>(c)]);
    }
  }
  return out;
}

int64_t columns_that_fit(int64_t width) {
  return (width - kLabelCells - 1) / 2;
}

std::vector<std::string> cell_lines(const Terminal& terminal, const Cells& cells, int64_t width, bool most) {
  std::vector<std::string> lines;
  add_column_names(terminal, cells, width, lines);
  const float largest = cells.largest() > 0 ? cells.largest() : 1.0F;
  const size_t columns = cells.columns.size();
  for (size_t r = 0; r < cells.rows.size(); ++r) {
    Line line(terminal, width);
    const Ink ink = static_cast<int64_t>(r) == cells.chosen ? Ink::bold : Ink::plain;
    line.cell(cells.rows[r], kLabelCells, text::Align::right, ink).add(" ");
    const auto begin = cells.values.begin() + static_cast<int64_t>(r * columns);
    const auto end = begin + static_cast<int64_t>(columns);
    for (auto cell = begin; cell != end; ++cell) line.heat(*cell / largest, 2);
    if (most && begin != end && line.left() >= 16) {
      const auto place = std::max_element(begin, end);
      line.add("  " + weight_text(*place) + " " + cells.columns[static_cast<size_t>(place - begin)],
               Ink::dim);
    }
    lines.push_back(line.text());
  }
  return lines;
}

std::string scale_line(const Terminal& terminal, float largest) {
  Line scale(terminal);
  scale.cell("", kLabelCells + 1).add("0 ", Ink::dim);
  for (int step = 0; step <= 10; ++step) scale.heat(step / 10.0, 2);
  scale.add(" " + weight_text(largest) + ", the largest", Ink::dim);
  return scale.text();
}

std::vector<std::string> side_by_side(const Terminal& terminal,
                                      const std::vector<std::vector<std::string>>& blocks) {
  std::vector<int64_t> widths;
  int64_t all = -kGap;
  size_t rows = 0;
  for (const std::vector<std::string>& block : blocks) {
    int64_t width = 0;
    for (const std::string& line : block) width = std::max(width, visible_width(line));
    widths.push_back(width);
    all += width + kGap;
    rows = std::max(rows, block.size());
  }
  std::vector<std::string> lines;
  if (all > terminal.width) {
    for (const std::vector<std::string>& block : blocks) {
      if (!lines.empty()) lines.emplace_back();
      lines.insert(lines.end(), block.begin(), block.end());
    }
    return lines;
  }
  for (size_t r = 0; r < rows; ++r) {
    std::string line;
    int64_t cells = 0;  // where the next block begins
    for (size_t b = 0; b < blocks.size(); ++b) {
      if (r < blocks[b].size()) {
        const int64_t missing = cells - visible_width(line);
        line.append(static_cast<size_t>(std::max<int64_t>(missing, 0)), ' ');
        line += blocks[b][r];
      }
      cells += widths[b] + kGap;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace regard::cli
