// Ids to text one by one, as generation makes them.
#pragma once

#include <string>
#include <string_view>

#include "regard/text/encoding.h"

namespace regard::text {

class Tokenizer;

// Bytes in, whole characters out. What can never become a character is given out as U+FFFD, one for each
// maximal ill-formed part, as the Unicode standard recommends and as other tokenizers' "replace" does.
class Utf8Assembler {
 public:
  // Appends to `out` what is complete after these bytes; the start of a character is held back.
  void push(std::string_view bytes, std::string& out);
  // Gives out what is held back, which is now known to be cut.
  void finish(std::string& out);

 private:
  std::string pending_;  // at most 3 bytes
};

// The pieces that push() returns, and finish() last, together are decode() of all ids.
class StreamDecoder {
 public:
  // `tokenizer` must outlive this.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // Valid UTF-8, never half a character; often empty. std::invalid_argument for an id outside the vocabulary.
  std::string push(TokenId id);
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_ = true;
  Utf8Assembler assembler_;
};

}  // namespace regard::text
