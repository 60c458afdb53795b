// Tokens grouped into the words of the text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regard/text/encoding.h"

namespace regard::text {

struct Word {
  std::string text;            // its bytes of the text; a special token's piece; white space made visible
  std::vector<size_t> tokens;  // indices into the Encoding, ascending
  Span bytes;                  // without the space in front; empty for special tokens that were added
  uint8_t text_index = 0;      // which text of a pair `bytes` counts in
  bool is_special = false;
  bool is_punctuation = false;  // only punctuation, symbols or white space
};

// Every token is in exactly one word, in order. A word is a run of tokens with no space between; punctuation
// stands on its own (but not where a piece mixes it with letters, "'t"); tokens of a script written without
// spaces (Chinese, Japanese, Thai, ...) stand on their own, except parts of one character. `text` (and
// `second` for a pair) must be what was encoded.
std::vector<Word> group_words(const Encoding& encoding, std::string_view text, std::string_view second = {});

}  // namespace regard::text
