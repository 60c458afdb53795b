#include "regard/attention/mask.h"

#include <gtest/gtest.h>

#include <random>

#include "regard/attention/bound_mask.h"
#include "regard/attention/definition.h"
#include "tests/attention/expect_mask.h"
#include "tests/attention/random_call.h"

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

TEST(Mask, IsANormalFormOfAndAndOr) {
  const Mask a = Mask::causal(Align::top_left);
  const Mask b = Mask::stride(3, Align::top_left);
  const Mask c = Mask::prefix(4);
  const Mask d = Mask::dense();
  EXPECT_EQ(a | b, b | a);
  EXPECT_EQ(a | a, a);
  EXPECT_EQ((a | b) | c, a | (b | c));
  EXPECT_EQ(a & (b | c), (a & b) | (a & c));
  EXPECT_EQ((a | b) & (c | d), (a & c) | (a & d) | (b & c) | (b & d));
  EXPECT_EQ(a | (a & b), a);
  EXPECT_EQ(a & (a | b), a);
  EXPECT_EQ(a | Mask(), Mask());
  EXPECT_NE(a | b, a & b);
  EXPECT_NE(a | b, a);
  EXPECT_EQ(((a & b) | c).to_string(), "(causal(top_left) & stride(3, top_left)) | prefix(4)");
  EXPECT_EQ((a | c).to_string(), "causal(top_left) | prefix(4)");
  EXPECT_TRUE(((a & d) | c).depends_on_data());
  EXPECT_FALSE((a | c).depends_on_data());
}

TEST(Mask, RefusesMoreThanEightAlternativesOfEightParts) {
  Mask any = Mask::stride(2, Align::top_left);
  Mask all = any;
  for (int64_t n = 3; n <= 9; ++n) {
    any = any | Mask::stride(n, Align::top_left);
    all = all & Mask::stride(n, Align::top_left);
  }
  EXPECT_EQ(any.terms().size(), 8U);
  EXPECT_EQ(all.terms().front().size(), 8U);
  const auto message = [](auto&& make) -> std::string {
    try {
      make();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message([&] { return any | Mask::prefix(1); }),
            "Mask: a | b would have 9 alternatives of up to 1 parts; allowed: at most 8 of at most 8");
  EXPECT_EQ(message([&] { return all & Mask::prefix(1); }),
            "Mask: a & b would have 1 alternatives of up to 9 parts; allowed: at most 8 of at most 8");
}

TEST(Mask, RefusesNumbersThatMeanNothing) {
  const Align align = Align::top_left;
  EXPECT_THROW(Mask::prefix(-1), std::invalid_argument);
  EXPECT_THROW(Mask::first_rows(-1), std::invalid_argument);
  EXPECT_THROW(Mask::stride(0, align), std::invalid_argument);
  EXPECT_THROW(Mask::same_block(0, align), std::invalid_argument);
  EXPECT_THROW(Mask::block_tail(4, 5), std::invalid_argument);
  EXPECT_THROW(Mask::block_tail(0, 0), std::invalid_argument);
  EXPECT_THROW(Mask::blocks(0, 4), std::invalid_argument);
  EXPECT_THROW(Mask::neighbourhood({4, 4, 0, 3}), std::invalid_argument);
  EXPECT_THROW(Mask::neighbourhood({4, 4, 5, 3}), std::invalid_argument) << "does not fit";
  EXPECT_THROW(Mask::neighbourhood({6, 6, 3, 3, 3}), std::invalid_argument) << "nor does it apart";
  EXPECT_NO_THROW(Mask::neighbourhood({4, 4, 5, 9, 3, Border::mask}));
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

TEST(Mask, HugeNumbersDoNotOverflow) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(seen(Mask::stride(kHuge, Align::bottom_right), 3, 4, 1), Keys{2});
  EXPECT_EQ(seen(Mask::same_block(kHuge, Align::bottom_right), 9, 4, 1), Keys{});
  EXPECT_EQ(seen(Mask::same_block(kHuge, Align::bottom_right), 9, 4, 5), (Keys{0, 1, 2, 3}));
  EXPECT_EQ(seen(Mask::block_tail(kHuge, kHuge - 2), 3, 4, 1), (Keys{2, 3}));
  EXPECT_EQ(seen(Mask::prefix(kHuge) & Mask::first_rows(kHuge), 3, 4, 1), (Keys{0, 1, 2, 3}));
  EXPECT_EQ(seen(Mask::window(kHuge, kHuge, Align::bottom_right), 3, 4, 1), (Keys{0, 1, 2, 3}));
}

TEST(MaskProperty, SpansAndBitsEqualTheDefinitionPairByPair) {
  for (const uint64_t seed : testing::property_seeds(1500)) {
    std::mt19937_64 random(seed);
    const auto pick = [&](std::initializer_list<int64_t> of) { return *(of.begin() + random() % of.size()); };
    Sizes sizes;
    sizes.B = pick({1, 2});
    sizes.Hq = pick({1, 3});
    sizes.Lq = pick({1, 2, 7, 12, 13, 31, 64, 65, 100});
    sizes.Lk = pick({1, 2, 7, 15, 16, 17, 63, 64, 65, 100, 129, 200});
    if (random() % 4 == 0) sizes.Lq = sizes.Lk = pick({1, 3, 8, 13}) * pick({2, 5, 7, 13});
    Problem problem(sizes, seed);
    testing::add_random_mask(problem, random);
    const Operands operands = problem.operands();
    SCOPED_TRACE(testing::describe(seed, problem));
    ASSERT_NO_THROW(check(problem.spec, operands));
    const Definition definition(problem.spec, operands);
    const int64_t rows = std::array<int64_t, 5>{1, 6, 12, 64, 96}[seed % 5];
    ASSERT_TRUE(testing::is_mask(
        bind_mask(problem.spec, operands), sizes.B, sizes.Hq, rows,
        [&](int64_t b, int64_t h, int64_t i, int64_t j) { return definition.visible(b, h, i, j); }));
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

TEST(Mask, SortedSegmentsVisitTheirOwnKeysAlone) {
  std::vector<int32_t> numbers;
  for (int32_t i = 0; i < 4096; ++i) numbers.push_back(i / 512);
  const MaskData data{{}, {}, {numbers.data(), {1, 1, 1, 4096}}, {numbers.data(), {1, 1, 1, 4096}}, {}};
  const TileCount tiles = count_tiles(BoundMask(Mask::segments(), 4096, 4096, data), 0, 0, 16, 64);
  EXPECT_EQ(tiles.live, 256 * 8);
  EXPECT_EQ(tiles.full, tiles.live);
  std::reverse(numbers.begin(), numbers.end());  // not sorted upwards: found all the same
  const TileCount reversed = count_tiles(BoundMask(Mask::segments(), 4096, 4096, data), 0, 0, 16, 64);
  EXPECT_EQ(reversed.live, tiles.live);
  EXPECT_EQ(reversed.full, tiles.full);
}

TEST(Mask, FullStaysFullInAUnion) {
  // The prefix and what lies behind the row: tiles of both are full.
  const Mask mask = Mask::causal(Align::top_left) | Mask::prefix(256);
  const TileCount tiles = count_tiles(BoundMask(mask, 512, 512), 0, 0, 64, 64);
  EXPECT_EQ(tiles.live, 8 * 4 + (1 + 2 + 3 + 4));
  EXPECT_EQ(tiles.full, tiles.live - 4);
}

TEST(Mask, ATwoDimensionalWindowVisitsItsRowsOfTheGridAlone) {
  // 64 x 64 places; blocks of 16 queries lie within a row of the grid and see 5 rows of 16 + 4 keys.
  const BoundMask mask(Mask::neighbourhood({64, 64, 5, 5}), 4096, 4096);
  int64_t keys = 0;
  for (int64_t row = 0; row < 4096; row += 16) {
    for (Span span = mask.next_span(0, 0, row, 16, 0); span.begin < span.end;
         span = mask.next_span(0, 0, row, 16, span.end)) {
      keys += span.end - span.begin;
    }
  }
  EXPECT_LE(keys, 256 * 5 * 20);
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
