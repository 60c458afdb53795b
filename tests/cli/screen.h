// A printed line as a terminal lays it out: what stands in each cell, and on which colour.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "regard/text/display.h"

namespace regard::cli::testing {

struct Cell {
  std::string text;    // empty in the second cell of a wide character
  std::string colour;  // the escape sequences in force: "1", "97;48;5;16", ...
  bool operator==(const Cell&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Cell& cell) {
  return out << '\'' << cell.text << "' in " << cell.colour;
}

inline std::vector<Cell> cells_of(std::string_view line) {
  std::vector<Cell> cells;
  std::string colour;
  while (!line.empty()) {
    if (line.starts_with("\033[")) {
      const size_t end = line.find('m');
      colour = line.substr(2, end - 2) == "0" ? "" : std::string(line.substr(2, end - 2));
      line.remove_prefix(end + 1);
      continue;
    }
    size_t length = 1;
    while (length < line.size() && (static_cast<unsigned char>(line[length]) & 0xC0) == 0x80) ++length;
    const std::string text(line.substr(0, length));
    const size_t width = text::display_width(text);
    if (width == 0 && !cells.empty()) cells.back().text += text;
    for (size_t w = 0; w < width; ++w) cells.push_back({w == 0 ? text : std::string(), colour});
    line.remove_prefix(length);
  }
  return cells;
}

// What stands in `count` cells from `begin` on.
inline std::string text_at(const std::vector<Cell>& cells, size_t begin, size_t count) {
  std::string out;
  for (size_t i = begin; i < begin + count && i < cells.size(); ++i) out += cells[i].text;
  return out;
}

}  // namespace regard::cli::testing
