// The Unigram language model: the most probable way to cut a text into pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regard/text/encoding.h"
#include "regard/text/trie.h"

namespace regard::text {

// One entry of the vocabulary that may be matched. The piece's bytes must outlive the model's construction.
struct UnigramPiece {
  std::string_view piece;
  TokenId id;
  double score;  // log-probability
  bool special;  // matched on request only
};

// A token of the best path, with its bytes of the (normalised) text.
struct UnigramToken {
  TokenId id;
  Span span;
};

class UnigramModel {
 public:
  UnigramModel() = default;
  // `unknown_score`: of one character that no piece covers. `single_precision`: sums are floats, added from
  // the left, as some engines have it; ties fall differently.
  UnigramModel(const std::vector<UnigramPiece>& pieces, TokenId unknown, double unknown_score,
               bool single_precision);

  // A path replaces another to the same place only where its sum is greater; at each place shorter pieces are
  // tried first and the unknown character last. Time and memory are linear in the text.
  std::vector<UnigramToken> best_path(std::string_view text, bool with_specials) const;

 private:
  template <class Real>
  std::vector<UnigramToken> search(std::string_view text, bool with_specials) const;

  struct Entry {
    TokenId id;
    double score;
    bool special;
  };
  Trie trie_;  // values: indices into entries_
  std::vector<Entry> entries_;
  TokenId unknown_ = 0;
  double unknown_score_ = 0;
  bool single_precision_ = false;
};

}  // namespace regard::text
