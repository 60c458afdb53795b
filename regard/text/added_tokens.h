// Tokens that are looked for in the text itself before the model cuts it: special tokens and the like.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/text/encoding.h"
#include "regard/text/trie.h"

namespace regard::text {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = true;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space after it along
  bool normalized = false;   // looked for after normalisation
};

// Leftmost first, longest at one place.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }
  const std::vector<AddedToken>& tokens() const { return tokens_; }

  // Calls on_text(span) for each part between tokens that is not empty and on_token(token, span) for each
  // token, in order. Special ones are matched only where `parse_special` says so.
  void split(std::string_view text, bool parse_special, const std::function<void(Span)>& on_text,
             const std::function<void(const AddedToken&, Span)>& on_token) const;

 private:
  const AddedToken* match(std::string_view text, size_t at, bool parse_special) const;

  std::vector<AddedToken> tokens_;
  Trie trie_;
};

}  // namespace regard::text
