#include "regard/text/display.h"

#include <utf8proc.h>

#include <algorithm>

#include "regard/text/unicode.h"
#include "regard/text/utf8.h"

namespace regard::text {
namespace {

constexpr char32_t kEmojiPresentation = 0xFE0F;

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0);
}

bool is_regional_indicator(char32_t c) {
  return c >= 0x1F1E6 && c <= 0x1F1FF;
}

size_t code_point_width(char32_t c) {
  if (is_control(c)) return 0;
  // Two halves of a flag take the two cells of the flag.
  if (is_regional_indicator(c)) return 1;
  return size_t(std::max(0, utf8proc_charwidth(static_cast<utf8proc_int32_t>(c))));
}

// One character as a reader sees it: its bytes and cells.
struct Cell {
  size_t length;
  size_t width;
};

Cell next_cell(std::string_view text, size_t at) {
  const Utf8Part part = next_part(text, at);
  if (part.kind != Utf8Part::Kind::character) return {1, 1};
  char32_t before = decode_valid(text, at).value;
  size_t end = at + part.length, width = code_point_width(before);
  int state = 0;
  while (end < text.size()) {
    const Utf8Part follows = next_part(text, end);
    if (follows.kind != Utf8Part::Kind::character) break;
    const char32_t c = decode_valid(text, end).value;
    if (is_grapheme_start(before, c, state)) break;
    // The parts of one picture overlay each other; those of an Indic syllable or of a flag stand side by
    // side.
    if (c == kEmojiPresentation) {
      width = 2;
    } else if (width < 2 && before != 0x200D) {
      width += code_point_width(c);
    }
    before = c;
    end += follows.length;
  }
  return {end - at, width};
}

}  // namespace

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) {
    const Cell cell = next_cell(text, at);
    width += cell.width;
    at += cell.length;
  }
  return width;
}

std::string cut_to_width(std::string_view text, size_t width, bool ascii) {
  size_t used = 0;
  size_t room_for_ellipsis = 0;  // bytes that still leave a cell for it
  for (size_t at = 0; at < text.size();) {
    const Cell cell = next_cell(text, at);
    if (used + cell.width > width)
      return width == 0 ? std::string()
                        : std::string(text.substr(0, room_for_ellipsis)) + (ascii ? "~" : "…");
    used += cell.width;
    at += cell.length;
    if (used + 1 <= width) room_for_ellipsis = at;
  }
  return std::string(text);
}

std::string fit_to_width(std::string_view text, size_t width, Align align, bool ascii) {
  std::string out = cut_to_width(text, width, ascii);
  const size_t space = width - std::min(width, display_width(out));
  const size_t left = align == Align::left ? 0 : align == Align::right ? space : space / 2;
  out.insert(0, left, ' ');
  out.append(space - left, ' ');
  return out;
}

std::string to_ascii(std::string_view text) {
  std::string out;
  std::u32string parts;
  for (size_t at = 0; at < text.size();) {
    const Cell cell = next_cell(text, at);
    const Utf8Part part = next_part(text, at);
    const size_t here = at;
    at += cell.length;
    if (part.kind != Utf8Part::Kind::character) {
      out.push_back('?');
      continue;
    }
    parts.clear();
    append_decomposed(decode_valid(text, here).value, parts);
    const char32_t base = parts.empty() ? 0 : parts[0];
    if (base >= 0x20 && base < 0x7F) {
      out.push_back(static_cast<char>(base));
    } else if (base < 0x20 || base == 0x7F) {
      out.append(base == '\r' && cell.length == 2 ? 2 : 1, '?');
    } else {
      out.append(cell.width, '?');
    }
  }
  return out;
}

}  // namespace regard::text
