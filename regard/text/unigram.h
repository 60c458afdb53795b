// Unigram tokenizers in the style of XLM-R: normalised text, U+2581 for each space, the most probable pieces.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "regard/text/aligned_text.h"
#include "regard/text/charsmap.h"
#include "regard/text/tokenizer.h"
#include "regard/text/unigram_model.h"

namespace regard::text {

struct UnigramConfig {
  // Normalisation: single code points by a table, or strings by a SentencePiece map; one of them or none.
  std::unordered_map<char32_t, std::u32string> table;
  std::optional<Charsmap> charsmap;
  bool collapse_spaces = true;                   // runs of spaces become one
  bool strip_left = false, strip_right = false;  // spaces at the ends of the text go
  bool prefix_space = true;                      // a space in front of a text that begins with none
  bool keep_empty = false;                       // a text that normalises to nothing still gets that space
  // Words (each from its U+2581 on) are cut one by one; otherwise the text as a whole.
  bool split_words = true;
  // White space of any kind only parts words, each of which gets its U+2581; then the space settings above do
  // not count.
  bool words_by_white_space = false;
  bool fuse_unknown = true;    // neighbouring unknown characters of a word are one unknown token
  bool byte_fallback = false;  // an unknown character becomes its bytes, the pieces <0x00> to <0xFF>
  bool single_precision = false;
  // With parse_special, special tokens are found among the pieces when the text is cut, not before.
  bool specials_as_pieces = false;
  std::vector<double> scores;  // log-probabilities by id
  double unknown_score = 0;    // of one character that no piece covers
};

class Unigram final : public Tokenizer {
 public:
  // Throws io::Error where parts.ids.unk or, with byte_fallback, the piece of a byte is missing.
  Unigram(TokenizerParts parts, UnigramConfig config);

  std::string_view kind() const override { return "Unigram"; }
  void append_bytes(TokenId id, bool first, std::string& out) const override;

 protected:
  void encode_plain(std::string_view text, size_t base, bool parse_special, Encoding& out) const override;
  bool parses_special_by_default() const override { return false; }
  std::optional<TokenId> find_forced(std::string_view piece, bool first) const override;
  bool piece_continues(std::string_view piece) const override;

 private:
  AlignedText normalize(std::string_view text, size_t base) const;
  AlignedText mark_spaces(const AlignedText& text, size_t base) const;

  // A byte's piece alone.
  bool is_byte(TokenId id) const { return !byte_of_.empty() && byte_of_[size_t(id)] >= 0; }
  void push_bytes(const AlignedText& text, Span span, Encoding& out) const;

  UnigramConfig config_;
  UnigramModel model_;
  std::array<TokenId, 256> byte_ids_{};  // with byte_fallback
  std::vector<int16_t> byte_of_;         // by id: the byte that its piece stands for, -1: none; empty without
};

}  // namespace regard::text
