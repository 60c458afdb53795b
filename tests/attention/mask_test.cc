#include "regard/attention/mask.h"

#include <gtest/gtest.h>

#include <random>

#include "regard/attention/bound_mask.h"
#include "regard/attention/definition.h"
#include "tests/attention/problem.h"

namespace regard::attention {
namespace {

using kernel::Span;
using testing::Problem;
using testing::Sizes;

TEST(Mask, ComparesByMeaningOfItsPartsNotByTheirOrder) {
  const Mask causal = Mask::causal(Align::bottom_right);
  const Mask window = Mask::window(128, 0, Align::bottom_right);
  EXPECT_EQ(causal & window, window & causal);
  EXPECT_EQ(causal & causal, causal);
  EXPECT_NE(causal, Mask::causal(Align::top_left));
  EXPECT_NE(causal & window, causal);
  EXPECT_EQ(Mask() & causal, causal);
}

TEST(Mask, SaysWhatItIs) {
  EXPECT_EQ(Mask().to_string(), "everything");
  EXPECT_EQ((Mask::window(128, 0, Align::bottom_right) & Mask::causal(Align::bottom_right)).to_string(),
            "causal(bottom_right) & window(128, 0, bottom_right)");
  EXPECT_EQ((Mask::dense() & Mask::key_lengths()).to_string(), "key_lengths & dense");
  EXPECT_TRUE(Mask::window(-1, -1, Align::top_left).sees_everything());
  EXPECT_TRUE((Mask::dense() & Mask::causal(Align::top_left)).uses_dense());
  EXPECT_FALSE(Mask::dense().uses_key_lengths());
}

TEST(Mask, RefusesAWindowBelowMinusOne) {
  EXPECT_THROW(Mask::window(-2, 0, Align::top_left), std::invalid_argument);
  EXPECT_THROW(Mask::window(0, -7, Align::top_left), std::invalid_argument);
}

// Keys seen by a row, through the lowered mask.
std::vector<int64_t> seen(const Mask& mask, int64_t Lq, int64_t Lk, int64_t row) {
  const BoundMask bound(mask, Lq, Lk);
  uint64_t word = 0;
  bound.bits(0, 0, row, 1, 0, Lk, &word);
  std::vector<int64_t> keys;
  for (int64_t j = 0; j < Lk; ++j) {
    if (word >> j & 1) keys.push_back(j);
  }
  return keys;
}

using Keys = std::vector<int64_t>;

TEST(Mask, CausalWithOtherNumbersOfQueriesAndKeysIsWhatTheCallerSaid) {
  EXPECT_EQ(seen(Mask::causal(Align::top_left), 2, 5, 0), (Keys{0}));
  EXPECT_EQ(seen(Mask::causal(Align::bottom_right), 2, 5, 0), (Keys{0, 1, 2, 3}));
  for (const int64_t row : {0, 1, 2}) {
    EXPECT_EQ(seen(Mask::causal(Align::bottom_right), 5, 2, row), Keys{}) << "row " << row;
  }
  EXPECT_EQ(seen(Mask::causal(Align::bottom_right), 5, 2, 4), (Keys{0, 1}));
}

TEST(Mask, WindowBoundsAreInclusive) {
  const Mask mask = Mask::causal(Align::top_left) & Mask::window(2, -1, Align::top_left);
  EXPECT_EQ(seen(mask, 5, 5, 4), (Keys{2, 3, 4}));
  EXPECT_EQ(seen(Mask::window(0, 0, Align::top_left), 5, 5, 3), (Keys{3}));
  EXPECT_EQ(seen(Mask::window(-1, 1, Align::top_left), 5, 5, 1), (Keys{0, 1, 2}));
}

TEST(Mask, HugeWindowsDoNotOverflow) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(seen(Mask::window(kHuge, kHuge, Align::bottom_right), 3, 4, 1), (Keys{0, 1, 2, 3}));
}

// A random conjunction over random sizes, the data included.
Problem random_problem(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::initializer_list<int64_t> of) { return *(of.begin() + random() % of.size()); };
  const auto chance = [&](int64_t n) { return random() % n == 0; };
  const auto align = [&] { return chance(2) ? Align::top_left : Align::bottom_right; };
  Sizes sizes;
  sizes.B = pick({1, 2});
  sizes.Hq = pick({1, 3});
  sizes.Lq = pick({1, 2, 7, 12, 13, 31, 64, 65, 100});
  sizes.Lk = pick({1, 2, 7, 15, 16, 17, 63, 64, 65, 100, 129, 200});
  Problem problem(sizes, seed);
  Mask& mask = problem.spec.mask;
  if (chance(2)) mask = mask & Mask::causal(align());
  if (chance(2)) mask = mask & Mask::window(pick({-1, 0, 1, 5, 40}), pick({-1, 0, 3, 70}), align());
  if (chance(4)) mask = mask & Mask::window(pick({-1, 0, 9}), pick({0, 2}), align());
  if (chance(3)) problem.add_key_lengths();
  if (chance(2)) {
    problem.add_dense_mask({chance(2) ? 1 : sizes.B, chance(2) ? 1 : sizes.Hq, chance(3) ? 1 : sizes.Lq,
                            chance(5) ? 1 : sizes.Lk},
                           chance(2) ? 0.02 : (chance(2) ? 0.5 : 0.98));
    if (chance(2) && problem.mask.size() > 64) {  // stretches of words that are all on and all off
      std::fill(problem.mask.begin(), problem.mask.begin() + problem.mask.size() / 3, 1);
      std::fill(problem.mask.begin() + problem.mask.size() / 2, problem.mask.end(), 0);
    }
  }
  return problem;
}

// Spans and bits of one block of rows against the definition, pair by pair.
void expect_block_is_right(const BoundMask& bound, const Definition& definition, int64_t b, int64_t h,
                           int64_t row, int64_t rows) {
  const int64_t keys = definition.keys;
  enum class Kind { dead, partial, full };
  std::vector<Kind> kinds(keys, Kind::dead);
  int64_t from = 0;
  for (Span span = bound.next_span(b, h, row, rows, 0); span.begin < span.end;
       span = bound.next_span(b, h, row, rows, from)) {
    ASSERT_GE(span.begin, from) << "spans are sorted and disjoint";
    ASSERT_LE(span.end, keys);
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
        const bool visible = c < columns && definition.visible(b, h, row + r, key + c);
        ASSERT_EQ(bit, visible) << "pair " << row + r << ", " << key + c;
        if (c >= columns) continue;
        const Kind wrong = visible ? Kind::dead : Kind::full;
        ASSERT_NE(kinds[key + c], wrong) << "pair " << row + r << ", " << key + c;
      }
    }
  }
}

TEST(MaskProperty, SpansAndBitsEqualTheDefinitionPairByPair) {
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    Problem problem = random_problem(seed);
    const Operands operands = problem.operands();
    ASSERT_NO_THROW(check(problem.spec, operands)) << "seed " << seed;
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + problem.sizes.to_string() + ", mask " +
                 problem.spec.mask.to_string());
    const BoundMask bound = bind_mask(problem.spec, operands);
    const Definition definition(problem.spec, operands);
    const int64_t rows = std::array<int64_t, 4>{1, 6, 12, 64}[seed % 4];
    for (int64_t b = 0; b < problem.sizes.B; ++b) {
      for (int64_t h = 0; h < problem.sizes.Hq; ++h) {
        for (int64_t row = 0; row < problem.sizes.Lq; row += rows) {
          expect_block_is_right(bound, definition, b, h, row, std::min(rows, problem.sizes.Lq - row));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Mask, SpansMayBeEnteredInTheMiddle) {
  Problem problem({.Lq = 40, .Lk = 200}, 3);
  problem.spec.mask = Mask::causal(Align::bottom_right);
  problem.add_dense_mask({1, 1, 40, 200}, 0.7);
  const BoundMask bound = bind_mask(problem.spec, problem.operands());
  const Span span = bound.next_span(0, 0, 12, 12, 0);
  for (int64_t from = span.begin; from < span.end; ++from) {
    const Span cut = bound.next_span(0, 0, 12, 12, from);
    EXPECT_GE(cut.begin, from);
    EXPECT_GT(cut.end, cut.begin);
  }
}

TEST(Mask, DeadPartsAreNotVisited) {
  // A band of 10 in a square of 4096: a block of 12 rows may touch 12 + 9 keys and no more.
  const BoundMask band(Mask::window(9, 0, Align::top_left), 4096, 4096);
  for (int64_t row = 0; row < 4096; row += 12) {
    int64_t keys = 0;
    const int64_t rows = std::min<int64_t>(12, 4096 - row);
    for (Span span = band.next_span(0, 0, row, rows, 0); span.begin < span.end;
         span = band.next_span(0, 0, row, rows, span.end)) {
      keys += span.end - span.begin;
    }
    ASSERT_LE(keys, rows + 9) << "row " << row;
  }
  // Two windows that exclude each other.
  const BoundMask nothing(Mask::window(0, 0, Align::top_left) & Mask::window(0, 0, Align::bottom_right), 8,
                          16);
  EXPECT_EQ(nothing.next_span(0, 0, 0, 8, 0).end, 0);
}

TEST(Mask, LiveTilesAreCountedOnce) {
  const auto count = [](const Mask& mask, int64_t Lq, int64_t Lk) {
    return count_tiles(BoundMask(mask, Lq, Lk), 0, 0, 16, 64);
  };
  TileCount tiles = count(Mask(), 128, 128);
  EXPECT_EQ(tiles.live, 16);
  EXPECT_EQ(tiles.full, 16);
  EXPECT_EQ(tiles.all, 16);
  tiles = count(Mask::causal(Align::top_left), 128, 128);
  EXPECT_EQ(tiles.live, 4 * 1 + 4 * 2);
  EXPECT_EQ(tiles.full, 4);  // of the lower half, the left tile of each block of rows
  tiles = count(Mask::window(0, 0, Align::top_left), 128, 128);
  EXPECT_EQ(tiles.live, 8);
  EXPECT_EQ(tiles.full, 0);
}

}  // namespace
}  // namespace regard::attention
