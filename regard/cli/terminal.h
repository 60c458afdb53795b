#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "regard/text/display.h"

// What the place that we print to can show, and lines that fit into it, counted in cells.
namespace regard::cli {

enum class Ink : uint8_t { plain, dim, bold, title, warn, blue, orange, green, pink, sky, yellow, red, grey };

struct Terminal {
  bool color = false;       // escape sequences are welcome
  bool true_color = false;  // 24 bits, else the 256 colour cube
  bool unicode = true;      // the locale is UTF-8; else ASCII only
  int64_t width = 80;

  // Of a file descriptor: colour only on a terminal and without NO_COLOR; width from the terminal, else
  // COLUMNS, else 80; UTF-8 by the locale (LC_ALL, LC_CTYPE, LANG).
  static Terminal detect(int descriptor);

  // Text as this terminal can show it: unchanged, or in ASCII.
  std::string show(std::string_view text) const;
  std::string ink(std::string_view text, Ink ink) const;
  // A text on the colour of a share from 0 to 1.
  std::string heat(std::string_view text, double share) const;
  // One cell for a share: a level of a bar, or a digit for tenths.
  std::string level(double share) const;
  // `cells` cells that are darker with the share, for terminals without colour.
  std::string shade(double share, int64_t cells) const;
  // A bar of at most `cells` cells; not padded.
  std::string bar(double share, int64_t cells) const;
};

// A line that never passes the terminal's width: what does not fit is cut with an ellipsis.
class Line {
 public:
  explicit Line(const Terminal& terminal, int64_t width = 0)
      : terminal_(&terminal), width_(width > 0 ? width : terminal.width) {}

  Line& add(std::string_view text, Ink ink = Ink::plain);
  // Exactly `cells` cells, as far as the line reaches.
  Line& cell(std::string_view text, int64_t cells, text::Align align = text::Align::left,
             Ink ink = Ink::plain);
  // A coloured cell; without colour the text gives way to shades.
  Line& heat(double share, int64_t cells);
  Line& pad_to(int64_t cell);

  int64_t cells() const { return cells_; }
  int64_t left() const { return width_ - cells_; }
  const std::string& text() const { return text_; }

 private:
  const Terminal* terminal_;
  int64_t width_;
  int64_t cells_ = 0;
  std::string text_;
};

// Breaks a text at spaces into lines of at most `width` cells. The first line begins with `first` spaces, the
// others with `indent`. A word that is longer than a line is cut.
std::vector<std::string> wrap(const Terminal& terminal, std::string_view text, int64_t width,
                              int64_t indent = 0, int64_t first = 0);
// The same for pieces that are not to be broken inside.
std::vector<std::string> wrap(const Terminal& terminal, const std::vector<std::string>& pieces, int64_t width,
                              int64_t indent, int64_t first);

// Colours of a share from 0 to 1 that colour-blind readers can tell apart and that stay ordered in grey
// (viridis): red, green, blue.
std::array<uint8_t, 3> heat_color(double share);

// Cells of a line without its escape sequences.
int64_t visible_width(std::string_view line);

}  // namespace regard::cli
