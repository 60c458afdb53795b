// Byte-pair encoding of one piece: neighbours are joined, the best pair first, until no known pair is left.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "regard/text/encoding.h"

namespace regard::text {

// One token of a piece; `length` bytes.
struct BpeSymbol {
  TokenId id;
  size_t length;
};

class BpeMerges {
 public:
  // Pairs in order of rank. Returns false where the pair has a rank already.
  bool add(TokenId left, TokenId right, TokenId joined);
  size_t size() const { return merges_.size(); }

  // Joins in place. Lower ranks first, then from the left; O(n log n) for n symbols. A symbol with a negative
  // id joins nothing.
  void apply(std::vector<BpeSymbol>& symbols) const;

 private:
  struct Merge {
    uint32_t rank;
    uint32_t joined;
  };
  const Merge* find(TokenId left, TokenId right) const;

  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace regard::text
