#include "tests/attention/expect_mask.h"

#include <algorithm>
#include <vector>

namespace regard::testing {
namespace {

using kernel::Span;

::testing::AssertionResult is_block(const attention::BoundMask& bound, int64_t b, int64_t h, int64_t row,
                                    int64_t rows, const Sees& sees) {
  const int64_t keys = bound.keys();
  enum class Kind { dead, partial, full };
  std::vector<Kind> kinds(keys, Kind::dead);
  int64_t from = 0;
  for (Span span = bound.next_span(b, h, row, rows, 0); span.begin < span.end;
       span = bound.next_span(b, h, row, rows, from)) {
    if (span.begin < from || span.end > keys) {
      return ::testing::AssertionFailure()
             << "span [" << span.begin << ", " << span.end << ") after " << from << ", row " << row;
    }
    std::fill(kinds.begin() + span.begin, kinds.begin() + span.end, span.full ? Kind::full : Kind::partial);
    from = span.end;
  }
  std::vector<uint64_t> words(rows);
  for (int64_t key = 0; key < keys; key += 37) {
    const int64_t columns = std::min<int64_t>(64, keys - key);
    std::fill(words.begin(), words.end(), ~uint64_t{0});
    bound.bits(b, h, row, rows, key, columns, words.data());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < 64; ++c) {
        const bool bit = words[r] >> c & 1;
        const bool visible = c < columns && sees(b, h, row + r, key + c);
        const bool in_span = c >= columns || kinds[key + c] != (visible ? Kind::dead : Kind::full);
        if (bit != visible || !in_span) {
          return ::testing::AssertionFailure()
                 << "pair " << row + r << ", " << key + c << " of batch entry " << b << ", head " << h
                 << " is " << (visible ? "visible" : "masked") << "; its bit is " << bit
                 << (in_span ? "" : ", and the spans of its rows say otherwise");
        }
      }
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

::testing::AssertionResult is_mask(const attention::BoundMask& bound, int64_t batches, int64_t heads,
                                   int64_t rows, const Sees& sees) {
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t row = 0; row < bound.queries(); row += rows) {
        const auto result = is_block(bound, b, h, row, std::min(rows, bound.queries() - row), sees);
        if (!result) return result;
      }
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace regard::testing
