#include "regard/text/unicode.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>

namespace regard::text {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool between(utf8proc_category_t c, utf8proc_category_t low, utf8proc_category_t high) {
  return c >= low && c <= high;
}

std::string mapped(std::string_view text, int options) {
  utf8proc_uint8_t* result = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &result,
                                   static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (length == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (length < 0) throw std::invalid_argument(utf8proc_errmsg(length));
  return {reinterpret_cast<const char*>(result), static_cast<size_t>(length)};
}

}  // namespace

bool is_letter(char32_t c) {
  return between(category(c), UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
}

bool is_number(char32_t c) {
  return between(category(c), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  // Beyond ASCII, White_Space is the separators and NEL.
  return c == 0x85 || between(category(c), UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}

bool is_punctuation(char32_t c) {
  return between(category(c), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool is_symbol(char32_t c) {
  return between(category(c), UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SO);
}

bool is_mark(char32_t c) {
  return between(category(c), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool is_nonspacing_mark(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_MN;
}

bool is_control_like(char32_t c) {
  return between(category(c), UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO);
}

bool is_word_character(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return is_letter(c) || is_mark(c) || kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_PC;
}

bool is_written_without_spaces(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  // Blocks, not scripts: utf8proc has no script property. Hangul is not here, Korean has spaces.
  static constexpr std::array<Range, 12> kRanges{{
      {0x0E00, 0x0EFF},    // Thai, Lao
      {0x1000, 0x109F},    // Myanmar
      {0x1780, 0x17FF},    // Khmer
      {0x2E80, 0x2FDF},    // CJK and Kangxi radicals
      {0x3005, 0x3007},    // ideographic iteration mark, closing mark, zero
      {0x3021, 0x3029},    // Hangzhou numerals
      {0x3040, 0x312F},    // Hiragana, Katakana, Bopomofo
      {0x31A0, 0x31FF},    // Bopomofo extended, strokes, Katakana extensions
      {0x3400, 0x9FFF},    // CJK extension A, unified ideographs
      {0xF900, 0xFAFF},    // compatibility ideographs
      {0xFF66, 0xFF9F},    // half-width Katakana
      {0x20000, 0x3FFFF},  // the ideographic planes
  }};
  for (const Range& range : kRanges)
    if (c >= range.first && c <= range.last) return true;
  return false;
}

void append_lowercase(char32_t c, std::u32string& out) {
  if (c == 0x130) {
    // The one code point whose full lower case is longer than one; utf8proc has the simple mapping only.
    out.append(U"i\u0307");
    return;
  }
  out.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

void append_decomposed(char32_t c, std::u32string& out) {
  std::array<utf8proc_int32_t, 32> buffer;
  int boundary = 0;
  const auto length = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer.data(), buffer.size(),
                                              UTF8PROC_DECOMPOSE, &boundary);
  if (length < 0 || size_t(length) > buffer.size()) {
    out.push_back(c);
    return;
  }
  for (size_t i = 0; i < size_t(length); ++i) out.push_back(static_cast<char32_t>(buffer[i]));
}

int combining_class(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

bool is_grapheme_start(char32_t before, char32_t c, int& state) {
  return utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before),
                                          static_cast<utf8proc_int32_t>(c), &state);
}

std::string to_nfc(std::string_view text) {
  return mapped(text, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
}

std::string to_nfd(std::string_view text) {
  return mapped(text, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
}

std::string to_nfkc_folded(std::string_view text) {
  return mapped(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD | UTF8PROC_STABLE);
}

}  // namespace regard::text
