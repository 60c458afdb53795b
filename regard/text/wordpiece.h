// BERT's tokenizer: words by white space and punctuation, each cut greedily into the longest known pieces.
#pragma once

#include <memory>
#include <string>

#include "regard/text/bert_normalizer.h"
#include "regard/text/tokenizer.h"
#include "regard/text/trie.h"

namespace regard::text {

struct WordPieceConfig {
  BertNormalizer normalizer;
  std::string prefix = "##";         // of pieces inside a word
  size_t max_word_characters = 100;  // longer words are unknown as a whole
  bool decoder_cleanup = true;       // on decoding, no space before . ? ! , and English contractions
  AddedTokens normalized_added;      // added tokens that are looked for after normalisation
};

class WordPiece final : public Tokenizer {
 public:
  // Throws io::Error where parts.ids.unk is missing.
  WordPiece(TokenizerParts parts, WordPieceConfig config);

  std::string_view kind() const override { return "WordPiece"; }
  void append_bytes(TokenId id, bool first, std::string& out) const override;

 protected:
  void encode_plain(std::string_view text, size_t base, bool parse_special, Encoding& out) const override;
  std::optional<TokenId> find_forced(std::string_view piece, bool first) const override;
  bool piece_continues(std::string_view piece) const override;

 private:
  void encode_words(const AlignedText& text, Span part, Encoding& out) const;
  void encode_word(const AlignedText& text, Span word, Encoding& out) const;

  WordPieceConfig config_;
  Trie starts_, insides_;  // pieces at the start of a word; inside one, without the prefix
};

}  // namespace regard::text
