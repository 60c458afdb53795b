#include "regard/text/visible.h"

#include <cstdio>

#include "regard/text/unicode.h"
#include "regard/text/utf8.h"

namespace regard::text {
namespace {

void append_hex(const char* format, unsigned value, std::string& out) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, format, value);
  out += buffer;
}

void append_visible(char32_t c, bool edge, bool start, std::string& out) {
  if (c == '\n') {
    out += "↵";
  } else if (c == '\t') {
    out += "⇥";
  } else if (c == ' ') {
    out += edge ? "␣" : " ";
  } else if (is_control_like(c) || is_space(c)) {
    append_hex("<U+%04X>", static_cast<unsigned>(c), out);
  } else {
    if (start && is_mark(c)) out += "◌";
    append_utf8(c, out);
  }
}

}  // namespace

std::string visible(std::string_view bytes, bool drop_space) {
  if (drop_space && bytes.size() > 1 && bytes[0] == ' ' && bytes.find_first_not_of(' ') != bytes.npos)
    bytes.remove_prefix(1);
  const size_t first_other = std::min(bytes.find_first_not_of(' '), bytes.size());
  const size_t last_other = bytes.find_last_not_of(' ');
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Part part = next_part(bytes, at);
    if (part.kind == Utf8Part::Kind::character) {
      const bool edge = at < first_other || last_other == bytes.npos || at > last_other;
      append_visible(decode_valid(bytes, at).value, edge, at == 0, out);
    } else {
      for (size_t i = 0; i < part.length; ++i)
        append_hex("<%02X>", static_cast<unsigned char>(bytes[at + i]), out);
    }
    at += part.length;
  }
  return out;
}

}  // namespace regard::text
