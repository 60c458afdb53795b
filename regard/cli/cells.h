#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/cli/terminal.h"

namespace regard::cli {

// Weights as a map: rows look, columns are looked at.
struct Cells {
  std::vector<std::string> rows, columns;  // their names
  std::vector<float> values;               // [rows, columns]
  int64_t chosen = -1;                     // a row whose name is bold

  float largest() const;
};

// The same with at most so many columns: neighbours become one, with the largest of their weights and the
// place of the first for a name.
Cells fewer_columns(const Cells& cells, int64_t at_most);

// Columns of two cells that fit beside the rows' names.
int64_t columns_that_fit(int64_t width);

// The map as lines of at most `width` cells (0: the terminal's): the columns' names written downwards, then
// the rows. Shades count up to the largest weight. most: beside each row, where there is room, what it looks
// at most.
std::vector<std::string> cell_lines(const Terminal& terminal, const Cells& cells, int64_t width, bool most);

// From 0 to the largest weight.
std::string scale_line(const Terminal& terminal, float largest);

// Blocks of lines, beside each other where the terminal is wide enough, else one below the other.
std::vector<std::string> side_by_side(const Terminal& terminal,
                                      const std::vector<std::vector<std::string>>& blocks);

}  // namespace regard::cli
