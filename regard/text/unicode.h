// Properties of code points, from utf8proc's tables and never from our own.
#pragma once

#include <string>
#include <string_view>

namespace regard::text {

bool is_letter(char32_t c);           // \p{L}
bool is_number(char32_t c);           // \p{N}
bool is_space(char32_t c);            // White_Space
bool is_punctuation(char32_t c);      // \p{P}
bool is_symbol(char32_t c);           // \p{S}
bool is_mark(char32_t c);             // \p{M}
bool is_nonspacing_mark(char32_t c);  // \p{Mn}
bool is_control_like(char32_t c);     // \p{Cc}, \p{Cf}, \p{Cs}, \p{Co}; not the unassigned ones
bool is_word_character(char32_t c);   // \w: letters, marks, decimal digits, connectors
// Scripts written without spaces between words: Han, kana, Bopomofo, Thai, Lao, Khmer, Myanmar.
bool is_written_without_spaces(char32_t c);

// Unicode's full lower case of one code point, without regard to its neighbours: U+0130 becomes two.
void append_lowercase(char32_t c, std::u32string& out);
// Canonical decomposition of one code point; marks are not yet in canonical order.
void append_decomposed(char32_t c, std::u32string& out);
int combining_class(char32_t c);

// Whether a reader sees a new character begin at `c` after `before`. `state` starts at 0.
bool is_grapheme_start(char32_t before, char32_t c, int& state);

// Canonical composition and decomposition (NFC, NFD) of a valid UTF-8 text.
std::string to_nfc(std::string_view text);
std::string to_nfd(std::string_view text);
// Compatibility composition with full case folding (NFKC_Casefold without its removal of ignorable
// characters): texts that a reader would call the same become equal.
std::string to_nfkc_folded(std::string_view text);

}  // namespace regard::text
