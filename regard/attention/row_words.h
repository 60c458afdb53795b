#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "regard/kernel/tile_mask.h"

// Masks that are known row by row, as words of up to 64 keys: the answers that kernels ask for, made of such
// words.
namespace regard::attention {

constexpr int64_t kWord = 64;

inline uint64_t low_bits(int64_t count) {
  return count >= kWord ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// Gaps that no tile could skip are not worth a span of their own.
constexpr int64_t kGap = 16;

// Where the first kGap zeros in a row after bit `from` begin; kWord if there are none.
inline int64_t end_of_run(uint64_t word, int64_t from) {
  uint64_t zeros = ~word & ~low_bits(from);
  for (int64_t n = 1; n < kGap; n *= 2) zeros &= zeros >> n;  // the next 2 n bits are zeros
  return zeros == 0 ? kWord : std::countr_zero(zeros);
}

// Reads keys [from, limit) word by word until a gap, or until words of another kind. piece(key, columns)
// gives the pairs that any row sees and those that every row sees. A span ends before what the next call
// reads first, so that successive calls read a word a few times at most.
template <class Piece>
kernel::Span scan(int64_t from, int64_t limit, Piece&& piece) {
  kernel::Span span{limit, limit, false};
  for (int64_t key = from; key < limit; key += kWord) {
    const int64_t columns = std::min(kWord, limit - key);
    const auto [any, every] = piece(key, columns);
    const bool full = every == low_bits(columns);
    int64_t first = any == 0 ? kWord : std::countr_zero(any);
    if (span.begin == limit) {
      if (any == 0) continue;
      span = {key + first, 0, full};
    } else if (full != span.full || key + first - span.end >= kGap) {
      return span;
    }
    const int64_t end = end_of_run(any, first);
    span.end = key + (end == kWord ? kWord - std::countl_zero(any) : end);
    if (end < kWord) return span;
  }
  return span.begin == limit ? kernel::Span{} : span;
}

// The same of `count` rows; word(r, key, columns) gives the keys that row r sees.
template <class Word>
kernel::Span scan_rows(int64_t count, int64_t from, int64_t limit, Word&& word) {
  return scan(from, limit, [&](int64_t key, int64_t columns) {
    uint64_t any = 0;
    uint64_t every = low_bits(columns);
    for (int64_t r = 0; r < count; ++r) {
      const uint64_t seen = word(r, key, columns);
      any |= seen;
      every &= seen;
    }
    return std::pair(any, every);
  });
}

// Clears the bits of pairs that are not visible; word(r) gives the keys that row r sees.
template <class Word>
void restrict_rows(int64_t count, uint64_t* words, Word&& word) {
  for (int64_t r = 0; r < count; ++r) {
    if (words[r] != 0) words[r] &= word(r);
  }
}

}  // namespace regard::attention
