// UTF-8, strictly as the Unicode standard defines it: no overlong forms, no surrogates, nothing above
// U+10FFFF.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace regard::text {

struct CodePoint {
  char32_t value;
  size_t length;  // bytes
};

// The code point at `at`, which must begin one of a valid text.
inline CodePoint decode_valid(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// The code point that ends just before `end` (> 0) of a valid text.
inline CodePoint decode_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return decode_valid(text, at);
}

void append_utf8(char32_t code_point, std::string& out);

// What stands at `at` of any bytes: a whole character, an ill-formed part (maximal, as the standard's U+FFFD
// practice has it), or the start of a character that the end of the bytes cuts.
struct Utf8Part {
  enum class Kind { character, ill_formed, cut } kind;
  size_t length;
};
Utf8Part next_part(std::string_view bytes, size_t at);

// The offset of the first byte that is not valid UTF-8; a character cut at the end counts from its first
// byte.
std::optional<size_t> find_invalid_utf8(std::string_view bytes);

// Runs visit(code_point, byte offset, byte length) over a valid text.
template <class Visit>
void for_each_code_point(std::string_view text, Visit&& visit) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint next = decode_valid(text, at);
    visit(next.value, at, next.length);
    at += next.length;
  }
}

}  // namespace regard::text
