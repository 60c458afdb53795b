#include "regard/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace regard::cli {
namespace {

// The set that Okabe and Ito chose for colour-blind readers, in the 256 colour cube.
const char* code(Ink ink) {
  switch (ink) {
    case Ink::plain:
      return "";
    case Ink::dim:
      return "2";
    case Ink::bold:
      return "1";
    case Ink::title:
      return "1;4";
    case Ink::warn:
      return "1;38;5;208";
    case Ink::blue:
      return "38;5;32";
    case Ink::orange:
      return "38;5;214";
    case Ink::green:
      return "38;5;36";
    case Ink::pink:
      return "38;5;175";
    case Ink::sky:
      return "38;5;74";
    case Ink::yellow:
      return "38;5;185";
    case Ink::red:
      return "38;5;166";
    case Ink::grey:
      return "38;5;245";
  }
  return "";
}

bool environment_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string lower(value);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

int64_t width_of(int descriptor) {
  winsize size{};
  if (isatty(descriptor) != 0 && ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return std::clamp<int64_t>(size.ws_col, 40, 200);
  }
  const char* columns = std::getenv("COLUMNS");
  const int64_t given = columns != nullptr ? std::strtol(columns, nullptr, 10) : 0;
  return given > 0 ? std::clamp<int64_t>(given, 40, 500) : 80;
}

int cube(uint8_t value) {
  return value < 48 ? 0 : value < 115 ? 1 : (value - 35) / 40;
}

}  // namespace

Terminal Terminal::detect(int descriptor) {
  Terminal terminal;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::strcmp(term, "dumb") == 0;
  terminal.color = isatty(descriptor) != 0 && (no_color == nullptr || *no_color == '\0') && !dumb;
  const char* depth = std::getenv("COLORTERM");
  terminal.true_color =
      depth != nullptr && (std::strcmp(depth, "truecolor") == 0 || std::strcmp(depth, "24bit") == 0);
  terminal.unicode = environment_is_utf8();
  terminal.width = width_of(descriptor);
  return terminal;
}

std::string Terminal::show(std::string_view text) const {
  return unicode ? std::string(text) : text::to_ascii(text);
}

std::string Terminal::ink(std::string_view text, Ink ink) const {
  if (!color || ink == Ink::plain || text.empty()) return std::string(text);
  return "\033[" + std::string(code(ink)) + "m" + std::string(text) + "\033[0m";
}

std::string Terminal::heat(std::string_view text, double share) const {
  if (!color) return std::string(text);
  const auto [r, g, b] = heat_color(share);
  const bool dark = 0.299 * r + 0.587 * g + 0.114 * b < 120;
  std::string out = dark ? "\033[97;48;" : "\033[30;48;";
  if (true_color) {
    out += "2;" + std::to_string(r) + ";" + std::to_string(g) + ";" + std::to_string(b) + "m";
  } else {
    out += "5;" + std::to_string(16 + 36 * cube(r) + 6 * cube(g) + cube(b)) + "m";
  }
  return out + std::string(text) + "\033[0m";
}

std::string Terminal::level(double share) const {
  static constexpr std::array<std::string_view, 8> kLevels{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  share = std::clamp(share, 0.0, 1.0);
  if (!unicode) return std::to_string(std::min(9, static_cast<int>(share * 10)));
  return std::string(kLevels[static_cast<size_t>(std::min(7.0, share * 8))]);
}

std::string Terminal::shade(double share, int64_t cells) const {
  static constexpr std::array<std::string_view, 6> kUnicode{" ", "·", "░", "▒", "▓", "█"};
  static constexpr std::array<std::string_view, 6> kAscii{" ", ".", ":", "+", "#", "@"};
  // Below one hundredth nothing is drawn, then steps at 0.05, 0.15, 0.35, 0.65.
  const double at = std::clamp(share, 0.0, 1.0);
  const size_t step = at < 0.01 ? 0 : at < 0.05 ? 1 : at < 0.15 ? 2 : at < 0.35 ? 3 : at < 0.65 ? 4 : 5;
  std::string out;
  for (int64_t i = 0; i < cells; ++i) out += unicode ? kUnicode[step] : kAscii[step];
  return out;
}

std::string Terminal::bar(double share, int64_t cells) const {
  static constexpr std::array<std::string_view, 8> kParts{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  share = std::clamp(share, 0.0, 1.0);
  std::string out;
  if (!unicode) return std::string(static_cast<size_t>(std::lround(share * static_cast<double>(cells))), '#');
  const auto eighths = static_cast<int64_t>(std::lround(share * static_cast<double>(cells) * 8));
  for (int64_t i = 0; i < eighths / 8; ++i) out += "█";
  return out + std::string(kParts[static_cast<size_t>(eighths % 8)]);
}

Line& Line::add(std::string_view text, Ink ink) {
  if (left() <= 0) return *this;
  const std::string fitting =
      text::cut_to_width(terminal_->show(text), static_cast<size_t>(left()), !terminal_->unicode);
  cells_ += static_cast<int64_t>(text::display_width(fitting));
  text_ += terminal_->ink(fitting, ink);
  return *this;
}

Line& Line::cell(std::string_view text, int64_t cells, text::Align align, Ink ink) {
  cells = std::min(cells, left());
  if (cells <= 0) return *this;
  text_ += terminal_->ink(
      text::fit_to_width(terminal_->show(text), static_cast<size_t>(cells), align, !terminal_->unicode), ink);
  cells_ += cells;
  return *this;
}

Line& Line::heat(double share, int64_t cells) {
  cells = std::min(cells, left());
  if (cells <= 0) return *this;
  text_ += terminal_->color ? terminal_->heat(std::string(static_cast<size_t>(cells), ' '), share)
                            : terminal_->shade(share, cells);
  cells_ += cells;
  return *this;
}

Line& Line::pad_to(int64_t cell) {
  const int64_t missing = std::min(cell, width_) - cells_;
  if (missing > 0) {
    text_ += std::string(static_cast<size_t>(missing), ' ');
    cells_ += missing;
  }
  return *this;
}

std::vector<std::string> wrap(const Terminal& terminal, std::string_view text, int64_t width, int64_t indent,
                              int64_t first) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    if (space > at) words.emplace_back(text.substr(at, space - at));
    at = space + 1;
  }
  return wrap(terminal, words, width, indent, first);
}

std::vector<std::string> wrap(const Terminal& terminal, const std::vector<std::string>& pieces, int64_t width,
                              int64_t indent, int64_t first) {
  std::vector<std::string> lines;
  std::string line(static_cast<size_t>(first), ' ');
  int64_t cells = first;
  bool empty = true;
  for (const std::string& piece : pieces) {
    std::string shown = terminal.show(piece);
    auto piece_cells = static_cast<int64_t>(text::display_width(shown));
    if (!empty && cells + 1 + piece_cells > width) {
      lines.push_back(std::move(line));
      line.assign(static_cast<size_t>(indent), ' ');
      cells = indent;
      empty = true;
    }
    if (!empty) {
      line += ' ';
      ++cells;
    }
    if (cells + piece_cells > width) {
      const auto room = static_cast<size_t>(std::max<int64_t>(width - cells, 1));
      shown = text::cut_to_width(shown, room, !terminal.unicode);
      piece_cells = static_cast<int64_t>(text::display_width(shown));
    }
    line += shown;
    cells += piece_cells;
    empty = false;
  }
  if (!empty) lines.push_back(std::move(line));
  return lines;
}

std::array<uint8_t, 3> heat_color(double share) {
  // Anchors of matplotlib's viridis (CC0).
  static constexpr std::array<std::array<double, 3>, 9> kAnchors{{{68, 1, 84},
                                                                  {71, 44, 122},
                                                                  {59, 81, 139},
                                                                  {44, 113, 142},
                                                                  {33, 144, 141},
                                                                  {39, 173, 129},
                                                                  {92, 200, 99},
                                                                  {170, 220, 50},
                                                                  {253, 231, 37}}};
  const double at = std::clamp(std::isnan(share) ? 0.0 : share, 0.0, 1.0) * (kAnchors.size() - 1);
  const size_t low = std::min<size_t>(static_cast<size_t>(at), kAnchors.size() - 2);
  const double part = at - static_cast<double>(low);
  std::array<uint8_t, 3> out{};
  for (size_t c = 0; c < 3; ++c) {
    out[c] = static_cast<uint8_t>(std::lround(kAnchors[low][c] * (1 - part) + kAnchors[low + 1][c] * part));
  }
  return out;
}

int64_t visible_width(std::string_view line) {
  std::string bare;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\033' && i + 1 < line.size() && line[i + 1] == '[') {
      while (i < line.size() && line[i] != 'm') ++i;
    } else {
      bare += line[i];
    }
  }
  return static_cast<int64_t>(text::display_width(bare));
}

}  // namespace regard::cli
