// SentencePiece's precompiled normalisation ("precompiled_charsmap"): a double-array trie from strings to
// what replaces them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "regard/text/aligned_text.h"

namespace regard::text {

class Charsmap {
 public:
  // The map's bytes: u32 size of the trie in bytes, the trie, the replacements, each ended by a NUL. Throws
  // io::Error with `source` where it is damaged; every step through it stays inside.
  static Charsmap parse(std::string bytes, std::string_view source);
  static Charsmap from_base64(std::string_view text, std::string_view source);

  // At each place the longest known string is replaced, else one code point is kept: SentencePiece's own
  // rule. (The Rust port works by grapheme and drops the mark of, for instance, U+FB01 U+0301. That is not
  // copied.) Calls out(replacement or kept character, its source).
  AlignedText normalize(std::string_view text, size_t base) const;

 private:
  struct Match {
    size_t length = 0;  // 0: none
    std::string_view replacement;
  };
  Match longest(std::string_view text) const;

  std::vector<uint32_t> trie_;
  std::string replacements_;
};

}  // namespace regard::text
