#include "regard/attention/patterns.h"

#include <gtest/gtest.h>

#include "regard/attention/bound_mask.h"
#include "tests/attention/expect_mask.h"

// Every part of a mask and every published pattern against a definition written down here.
namespace regard::attention {
namespace {

using testing::is_mask;

// Row i sees key j of Lq queries and Lk keys; p: the row's place among the keys.
struct Pair {
  int64_t i, j, p, Lq, Lk;
};
struct Case {
  const char* name;
  std::function<Mask(Align)> mask;
  std::function<bool(const Pair&)> sees;
};

int64_t block(int64_t at, int64_t size) {
  return at >= 0 ? at / size : -1 - (-1 - at) / size;
}

const Case kCases[] = {
    {"Causal", [](Align a) { return Mask::causal(a); }, [](const Pair& x) { return x.j <= x.p; }},
    {"Window", [](Align a) { return Mask::window(3, 5, a); },
     [](const Pair& x) { return x.p - 3 <= x.j && x.j <= x.p + 5; }},
    {"PrefixLanguageModel", [](Align a) { return Mask::causal(a) | Mask::prefix(9); },
     [](const Pair& x) { return x.j <= x.p || x.j < 9; }},
    {"FirstRows", [](Align) { return Mask::first_rows(7); }, [](const Pair& x) { return x.i < 7; }},
    {"EveryThirdWord", [](Align a) { return Mask::causal(a) & Mask::stride(3, a); },
     [](const Pair& x) { return x.j <= x.p && (x.p - x.j) % 3 == 0; }},
    {"WideStride", [](Align a) { return Mask::stride(40, a); },
     [](const Pair& x) { return std::abs(x.p - x.j) % 40 == 0; }},
    {"SameBlock", [](Align a) { return Mask::same_block(10, a); },
     [](const Pair& x) { return block(x.p, 10) == block(x.j, 10); }},
    {"BlockTail", [](Align) { return Mask::block_tail(10, 3); }, [](const Pair& x) { return x.j % 10 >= 7; }},
    {"SparseTransformerStrided", [](Align a) { return sparse_transformer_strided(8, a).merged(); },
     [](const Pair& x) { return x.j <= x.p && (x.p - x.j <= 8 || (x.p - x.j) % 8 == 0); }},
    {"SparseTransformerStridedSummary", [](Align a) { return sparse_transformer_strided(50, a).summary; },
     [](const Pair& x) { return x.j <= x.p && (x.p - x.j) % 50 == 0; }},
    {"SparseTransformerFixed", [](Align a) { return sparse_transformer_fixed(16, 4, a).merged(); },
     [](const Pair& x) { return x.j <= x.p && (block(x.p, 16) == x.j / 16 || x.j % 16 >= 12); }},
    {"SparseTransformerFixedLocal", [](Align a) { return sparse_transformer_fixed(16, 4, a).local; },
     [](const Pair& x) { return x.j <= x.p && block(x.p, 16) == x.j / 16; }},
    {"Atrous", [](Align a) { return atrous(4, 13, a); },
     [](const Pair& x) { return std::abs(x.p - x.j) <= 13 && (x.p - x.j) % 4 == 0; }},
    {"LocalOrStrided", [](Align a) { return local_or_strided(2, 7, a); },
     [](const Pair& x) { return std::abs(x.p - x.j) <= 2 || (x.p - x.j) % 7 == 0; }},
    {"Longformer", [](Align a) { return longformer(6, 2, a); },
     [](const Pair& x) { return std::abs(x.p - x.j) <= 3 || x.j < 2 || x.i < 2; }},
};

class Pattern : public ::testing::TestWithParam<Case> {};

TEST_P(Pattern, SpansAndBitsEqualItsDefinition) {
  for (const Align align : {Align::top_left, Align::bottom_right}) {
    const Mask mask = GetParam().mask(align);
    for (const int64_t Lq : {1, 5, 17, 64, 97, 131}) {
      for (const int64_t Lk : {1, 16, 33, 64, 97, 150}) {
        const int64_t offset = align == Align::bottom_right ? Lk - Lq : 0;
        const BoundMask bound(mask, Lq, Lk);
        for (const int64_t rows : {1, 6, 96}) {
          ASSERT_TRUE(is_mask(bound, 1, 1, rows,
                              [&](int64_t, int64_t, int64_t i, int64_t j) {
                                return GetParam().sees({i, j, i + offset, Lq, Lk});
                              }))
              << mask.to_string() << ", " << Lq << " queries, " << Lk << " keys, blocks of " << rows;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, Pattern, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// sees[i * keys + j] of a mask without data.
std::vector<bool> square_of(const Mask& mask, int64_t length) {
  const BoundMask bound(mask, length, length);
  std::vector<bool> sees;
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t j = 0; j < length; ++j) {
      uint64_t word = 0;
      bound.bits(0, 0, i, 1, j, 1, &word);
      sees.push_back((word & 1) != 0);
    }
  }
  return sees;
}

TEST(Patterns, EveryCausalRowOfSparseTransformerSeesItself) {
  for (const Mask& mask : {sparse_transformer_strided(8, Align::top_left).merged(),
                           sparse_transformer_strided(8, Align::top_left).local,
                           sparse_transformer_strided(8, Align::top_left).summary,
                           sparse_transformer_fixed(8, 3, Align::top_left).merged(),
                           sparse_transformer_fixed(8, 3, Align::top_left).local}) {
    const std::vector<bool> sees = square_of(mask, 100);
    for (int64_t i = 0; i < 100; ++i) {
      EXPECT_TRUE(sees[i * 100 + i]) << mask.to_string() << ", row " << i;
      for (int64_t j = i + 1; j < 100; ++j) ASSERT_FALSE(sees[i * 100 + j]) << mask.to_string();
    }
  }
}

// What each row hears of after a number of layers.
std::vector<bool> after(const std::vector<bool>& sees, int64_t length, int layers) {
  std::vector<bool> reach = sees;
  for (int layer = 1; layer < layers; ++layer) {
    std::vector<bool> next(reach.size());
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t k = 0; k < length; ++k) {
        if (!sees[i * length + k]) continue;
        for (int64_t j = 0; j < length; ++j)
          next[i * length + j] = next[i * length + j] || reach[k * length + j];
      }
    }
    reach = next;
  }
  return reach;
}

TEST(Patterns, AStrideAloneKeepsResidueClassesApartInAnyNumberOfLayers) {
  const std::vector<bool> apart = after(square_of(atrous(3, -1, Align::top_left), 40), 40, 10);
  for (int64_t i = 0; i < 40; ++i) {
    for (int64_t j = 0; j < 40; ++j) ASSERT_EQ(apart[i * 40 + j], (i - j) % 3 == 0);
  }
  // Neighbours beside it bring everything together.
  const std::vector<bool> together = after(square_of(local_or_strided(1, 3, Align::top_left), 40), 40, 2);
  EXPECT_EQ(std::count(together.begin(), together.end(), false), 0);
}

TEST(Patterns, SparseTransformerReachesEverythingBeforeInTwoLayers) {
  const Mask strided = sparse_transformer_strided(6, Align::top_left).merged();
  const std::vector<bool> reach = after(square_of(strided, 36), 36, 2);
  for (int64_t i = 0; i < 36; ++i) {
    for (int64_t j = 0; j < 36; ++j) ASSERT_EQ(reach[i * 36 + j], j <= i);
  }
}

TEST(Patterns, WindowsCostWhatTheirPairsNeed) {
  // FLOPs are counted in live tiles of 1 x 1: exactly the visible pairs.
  const int64_t length = 200;
  for (const Mask& mask : {Mask::window(16, 0, Align::top_left), longformer(8, 2, Align::top_left),
                           sparse_transformer_fixed(16, 4, Align::top_left).merged(),
                           Mask::causal(Align::top_left) | Mask::prefix(30)}) {
    const std::vector<bool> sees = square_of(mask, length);
    const TileCount tiles = count_tiles(BoundMask(mask, length, length), 0, 0, 1, 1);
    EXPECT_EQ(tiles.live, std::count(sees.begin(), sees.end(), true)) << mask.to_string();
    EXPECT_EQ(tiles.full, tiles.live) << mask.to_string();
  }
}

TEST(BigBird, EveryBlockIsTwoStepsFromEveryOther) {
  const BlockPattern pattern = bigbird({.block = 16, .seed = 5}, 3, 500);
  const int64_t blocks = 32;
  ASSERT_EQ(pattern.size, (kernel::Extents{1, 3, blocks, blocks}));
  for (int64_t h = 0; h < 3; ++h) {
    const auto sees = [&](int64_t i, int64_t j) { return pattern.view()(0, h, i, j) != 0; };
    std::vector<bool> square;
    for (int64_t i = 0; i < blocks; ++i) {
      for (int64_t j = 0; j < blocks; ++j) square.push_back(sees(i, j));
      int64_t count = 0;
      for (int64_t j = 0; j < blocks; ++j) count += sees(i, j) ? 1 : 0;
      const bool global = i == 0 || i == blocks - 1;
      const int64_t around = i == 1 || i == blocks - 2 ? 2 : 3;  // a window block may be a global one
      EXPECT_EQ(count, global ? blocks : 2 + around + 3) << "block " << i;
    }
    const std::vector<bool> reach = after(square, blocks, 2);
    EXPECT_EQ(std::count(reach.begin(), reach.end(), false), 0);
  }
}

TEST(BigBird, RandomBlocksComeFromTheSeedAndDifferByHead) {
  const BlockPattern once = bigbird({.block = 8, .seed = 5}, 2, 320);
  EXPECT_EQ(once.table, bigbird({.block = 8, .seed = 5}, 2, 320).table);
  EXPECT_NE(once.table, bigbird({.block = 8, .seed = 6}, 2, 320).table);
  EXPECT_FALSE(std::equal(once.table.begin(), once.table.begin() + 1600, once.table.begin() + 1600));
  const BoundMask bound(once.mask, 320, 320, {{}, {}, {}, {}, once.view()});
  EXPECT_TRUE(is_mask(bound, 1, 2, 6, [&](int64_t, int64_t h, int64_t i, int64_t j) {
    return once.view()(0, h, i / 8, j / 8) != 0;
  }));
}

TEST(BigBird, ShortInputsSeeEverything) {
  const BlockPattern pattern = bigbird({.block = 64}, 1, 200);
  EXPECT_EQ(std::count(pattern.table.begin(), pattern.table.end(), 1), 16);
}

// One axis, as the paper tells it: the window of `kernel` places that is nearest to being centred.
std::vector<int64_t> window_of(int64_t at, int64_t size, int64_t kernel, int64_t dilation, Border border) {
  std::vector<int64_t> places;
  std::vector<int64_t> line;  // places of its class
  for (int64_t x = at % dilation; x < size; x += dilation) line.push_back(x);
  const auto centre = static_cast<int64_t>(std::find(line.begin(), line.end(), at) - line.begin());
  int64_t begin = centre - kernel / 2;
  if (border == Border::shift) {
    while (begin < 0) ++begin;
    while (begin + kernel > static_cast<int64_t>(line.size())) --begin;
  }
  for (int64_t k = begin; k < begin + kernel; ++k) {
    if (k >= 0 && k < static_cast<int64_t>(line.size())) places.push_back(line[k]);
  }
  return places;
}

bool has(const std::vector<int64_t>& places, int64_t at) {
  return std::find(places.begin(), places.end(), at) != places.end();
}

TEST(Neighbourhood, EqualsTheDefinitionOnBothBorders) {
  const part::Neighbourhood grids[] = {{6, 6, 3, 3},      {5, 13, 3, 5},     {7, 7, 7, 7},  {9, 20, 4, 6},
                                       {11, 9, 3, 3, 2},  {12, 12, 3, 3, 4}, {1, 70, 1, 9}, {70, 1, 9, 1},
                                       {3, 67, 2, 13, 1}, {10, 10, 5, 3, 2}};
  for (part::Neighbourhood grid : grids) {
    for (const Border border : {Border::shift, Border::mask}) {
      grid.border = border;
      const int64_t cells = grid.height * grid.width;
      const BoundMask bound(Mask::neighbourhood(grid), cells, cells);
      for (const int64_t rows : {1, 6, 12, 96}) {
        EXPECT_TRUE(is_mask(bound, 1, 1, rows, [&](int64_t, int64_t, int64_t i, int64_t j) {
          return has(window_of(i / grid.width, grid.height, grid.kernel_y, grid.dilation, border),
                     j / grid.width) &&
                 has(window_of(i % grid.width, grid.width, grid.kernel_x, grid.dilation, border),
                     j % grid.width);
        })) << Mask::neighbourhood(grid).to_string();
      }
    }
  }
}

TEST(Neighbourhood, CountsOfKeysAreExact) {
  const auto keys_of = [](const part::Neighbourhood& grid) {
    const std::vector<bool> sees = square_of(Mask::neighbourhood(grid), grid.height * grid.width);
    std::vector<int64_t> counts;
    const int64_t cells = grid.height * grid.width;
    for (int64_t i = 0; i < cells; ++i) {
      counts.push_back(std::count(sees.begin() + i * cells, sees.begin() + (i + 1) * cells, true));
    }
    return counts;
  };
  // Shifted: every query sees the whole kernel. The starts of one axis of 6 with a kernel of 3: 0 0 1 2 3 3.
  EXPECT_EQ(keys_of({6, 8, 3, 5}), std::vector<int64_t>(48, 15));
  const std::vector<bool> line = square_of(Mask::neighbourhood({1, 6, 1, 3}), 6);
  for (const auto& [i, start] : {std::pair{0, 0}, {1, 0}, {2, 1}, {3, 2}, {4, 3}, {5, 3}}) {
    for (int64_t j = 0; j < 6; ++j) EXPECT_EQ(line[i * 6 + j], j >= start && j < start + 3);
  }
  // Masked: what the border cuts off is missing, 2 of 3 on each side.
  const std::vector<int64_t> cut = keys_of({6, 8, 3, 3, 1, Border::mask});
  for (int64_t y = 0; y < 6; ++y) {
    for (int64_t x = 0; x < 8; ++x) {
      EXPECT_EQ(cut[y * 8 + x], (y == 0 || y == 5 ? 2 : 3) * (x == 0 || x == 7 ? 2 : 3));
    }
  }
  // A kernel of the whole grid is full attention.
  EXPECT_EQ(keys_of({5, 7, 5, 7}), std::vector<int64_t>(35, 35));
}

TEST(Neighbourhood, InTheInteriorMovesWithTheQuery) {
  const part::Neighbourhood grid{12, 14, 5, 3, 2};
  const std::vector<bool> sees = square_of(Mask::neighbourhood(grid), 12 * 14);
  const auto at = [&](int64_t y, int64_t x, int64_t key_y, int64_t key_x) {
    return sees[(y * 14 + x) * 12 * 14 + key_y * 14 + key_x];
  };
  for (int64_t y = 4; y < 7; ++y) {
    for (int64_t x = 2; x < 11; ++x) {
      for (int64_t key_y = 0; key_y < 11; ++key_y) {
        for (int64_t key_x = 0; key_x < 13; ++key_x) {
          ASSERT_EQ(at(y, x, key_y, key_x), at(y + 1, x + 1, key_y + 1, key_x + 1));
        }
      }
    }
  }
}

TEST(Swin, SegmentsAreSquaresThatAShiftMoves) {
  EXPECT_EQ(swin_segments(4, 4, 2, 0),
            (std::vector<int32_t>{0, 0, 1, 1, 0, 0, 1, 1, 4, 4, 5, 5, 4, 4, 5, 5}));
  const std::vector<int32_t> moved = swin_segments(7, 9, 4, 2);
  const BoundMask bound(Mask::segments(), 63, 63,
                        {{}, {}, {moved.data(), {1, 1, 1, 63}}, {moved.data(), {1, 1, 1, 63}}, {}});
  // Cuts at 2, 6, ...: where the cyclic shift by 2 puts the borders of windows of 4.
  const auto window = [](int64_t at) { return (at + 2) / 4; };
  EXPECT_TRUE(is_mask(bound, 1, 1, 6, [&](int64_t, int64_t, int64_t i, int64_t j) {
    return window(i / 9) == window(j / 9) && window(i % 9) == window(j % 9);
  }));
}

TEST(Patterns, ArgumentsThatMeanNothingAreRefused) {
  EXPECT_THROW(sparse_transformer_strided(0, Align::top_left), std::invalid_argument);
  EXPECT_THROW(sparse_transformer_fixed(8, 9, Align::top_left), std::invalid_argument);
  EXPECT_THROW(local_or_strided(-1, 3, Align::top_left), std::invalid_argument);
  EXPECT_THROW(longformer(7, 1, Align::top_left), std::invalid_argument);
  EXPECT_THROW(bigbird({.window = 2}, 1, 100), std::invalid_argument);
  EXPECT_THROW(bigbird({.block = 0}, 1, 100), std::invalid_argument);
  EXPECT_THROW(swin_segments(8, 8, 4, 4), std::invalid_argument);
}

}  // namespace
}  // namespace regard::attention
