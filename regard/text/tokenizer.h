// Text to the ids that a model takes, and back.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "regard/text/added_tokens.h"
#include "regard/text/chat.h"
#include "regard/text/encoding.h"
#include "regard/text/stream_decoder.h"
#include "regard/text/template.h"
#include "regard/text/vocabulary.h"

namespace regard::text {

// "text is not valid UTF-8 at byte N". Every text that comes in is checked; nothing is repaired silently.
class InvalidUtf8 : public std::invalid_argument {
 public:
  explicit InvalidUtf8(size_t offset);
  size_t offset() const { return offset_; }

 private:
  size_t offset_;
};

// What every kind of tokenizer has beside its model.
struct TokenizerParts {
  Vocabulary vocabulary;
  AddedTokens added;  // looked for in the text as it is
  Template around;    // special tokens around a text
  SpecialIds ids;
  std::vector<uint8_t> special;           // by id: 1 for special tokens; shorter than the vocabulary is fine
  std::optional<std::string> chat_jinja;  // the template as the file has it; not looked at before it is used
};

// Immutable after loading: any number of threads may use one at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // "WordPiece", "byte-level BPE" or "Unigram".
  virtual std::string_view kind() const = 0;

  // Throws InvalidUtf8; std::invalid_argument for a max_length that leaves no room for the special tokens.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Two texts for one pass of a model; text_index tells which text an offset counts in.
  Encoding encode_pair(std::string_view first, std::string_view second,
                       const EncodeOptions& options = {}) const;
  // Pieces chosen by the caller, with '|' between them: "我|吃|了|一个|苹果". Each must be one token of the
  // vocabulary (written plainly: what marks the start of a word is found by itself where it exists). Offsets
  // count in the text that is left without the '|', which forced_text() gives. std::invalid_argument names
  // the first piece that is no token.
  Encoding encode_pieces(std::string_view pieces, const EncodeOptions& options = {}) const;
  static std::string forced_text(std::string_view pieces);

  // Valid UTF-8; bytes that form no character come as U+FFFD. std::invalid_argument for an unknown id.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const;
  // The bytes that one id adds to a decoded text; `first` where no id before it added any.
  virtual void append_bytes(TokenId id, bool first, std::string& out) const = 0;

  size_t vocabulary_size() const { return parts_.vocabulary.size(); }
  std::optional<TokenId> id_of(std::string_view piece) const { return parts_.vocabulary.find(piece); }
  // std::invalid_argument for an unknown id.
  const std::string& piece_of(TokenId id) const { return parts_.vocabulary.piece(id); }
  bool is_special(TokenId id) const;
  const SpecialIds& special_ids() const { return parts_.ids; }
  // Special tokens that encode() adds to one text.
  size_t added_special_count() const { return added_count(parts_.around.single); }

  // One piece on its own, for people: no marker of a word's start, white space and control characters made
  // visible, bytes that are no character as <E4>. WordPiece keeps its "##", which is how papers print it.
  std::string display_piece(TokenId id) const;
  // The same for each token of an encoding of `text` (the first of a pair: `second` is the other one): a
  // character split over several tokens is shown in each of them with its part, "苹 1/3".
  std::vector<std::string> display_pieces(const Encoding& encoding, std::string_view text,
                                          std::string_view second = {}) const;

  bool has_chat_template() const { return parts_.chat_jinja.has_value(); }
  // The text to encode (without add_special: it holds its own). Throws io::Error where the model has no
  // template or one that is not known; see ChatTemplate.
  std::string apply_chat_template(std::span<const Message> messages, bool add_generation_prompt = true) const;

 protected:
  explicit Tokenizer(TokenizerParts parts);

  // Appends the tokens of `text`, which holds no added token that is to be matched; its first byte is byte
  // `base` of the whole text.
  virtual void encode_plain(std::string_view text, size_t base, bool parse_special, Encoding& out) const = 0;
  // The default of EncodeOptions::parse_special.
  virtual bool parses_special_by_default() const { return true; }
  // The token that a caller's forced piece names; `first`: no piece stands before it.
  virtual std::optional<TokenId> find_forced(std::string_view piece, bool first) const = 0;
  // Whether a token with this piece stands inside or at the end of a word.
  virtual bool piece_continues(std::string_view piece) const = 0;

  void push(Encoding& out, TokenId id, Span span, bool continues) const;

  TokenizerParts parts_;

 private:
  Encoding encode_text(std::string_view text, const EncodeOptions& options) const;
};

}  // namespace regard::text
