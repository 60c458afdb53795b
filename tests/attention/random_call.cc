#include "tests/attention/random_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace regard::testing {

using attention::Align;
using attention::Mask;
using kernel::DType;
namespace part = attention::part;

namespace {

part::Neighbourhood random_grid(int64_t cells, std::mt19937_64& random) {
  part::Neighbourhood grid{cells, 1, 1, 1};
  for (const int64_t width : {2, 5, 7, 13}) {
    if (cells % width == 0 && random() % 3 != 0) grid = {cells / width, width, 1, 1};
  }
  const auto up_to = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  grid.border = random() % 2 == 0 ? attention::Border::shift : attention::Border::mask;
  if (grid.border == attention::Border::mask) {
    grid.dilation = up_to(3);
    grid.kernel_y = up_to(6);
    grid.kernel_x = up_to(6);
  } else {
    grid.dilation = up_to(std::min<int64_t>(3, std::min(grid.height, grid.width)));
    grid.kernel_y = up_to(std::min<int64_t>(7, grid.height / grid.dilation));
    grid.kernel_x = up_to(std::min<int64_t>(7, grid.width / grid.dilation));
  }
  return grid;
}

}  // namespace

void add_random_mask(Problem& problem, std::mt19937_64& random) {
  const auto pick = [&](std::initializer_list<int64_t> of) { return *(of.begin() + random() % of.size()); };
  const auto chance = [&](int64_t n) { return random() % n == 0; };
  const auto align = [&] { return chance(2) ? Align::top_left : Align::bottom_right; };
  const Sizes& sizes = problem.sizes;
  const int64_t block_rows = pick({1, 4, 5, 16, 64, 300});
  const int64_t block_keys = pick({1, 3, 16, 50, 64, 300});
  const auto any_part = [&]() -> Mask {
    switch (random() % 13) {
      case 0:
      case 1:
        return Mask::causal(align());
      case 2:
        return Mask::window(pick({-1, 0, 1, 5, 40}), pick({-1, 0, 3, 70}), align());
      case 3:
        return Mask::prefix(pick({0, 1, 7, 65}));
      case 4:
        return Mask::first_rows(pick({0, 1, 5, 14}));
      case 5:
        return Mask::stride(pick({1, 2, 3, 19, 64, 1000}), align());
      case 6:
        return Mask::same_block(pick({1, 4, 13, 64, 1000}), align());
      case 7: {
        const int64_t size = pick({1, 3, 16, 100});
        return Mask::block_tail(size, std::min(size, pick({0, 1, 4, 50})));
      }
      case 8:
        if (problem.lengths.empty()) {
          for (int64_t b = 0; b < sizes.B; ++b) {
            problem.lengths.push_back(static_cast<int64_t>(random() % (sizes.Lk + 1)));
          }
        }
        return Mask::key_lengths();
      case 9:
        if (problem.query_segments.empty()) problem.make_segments(!chance(3));
        return Mask::segments();
      case 10:
        if (problem.blocks.empty()) problem.make_blocks(block_rows, block_keys, chance(2) ? 0.2 : 0.7);
        return Mask::blocks(block_rows, block_keys);
      case 11:
        if (sizes.Lq == sizes.Lk) return Mask::neighbourhood(random_grid(sizes.Lq, random));
        [[fallthrough]];
      default:
        if (problem.mask.empty()) {
          const Mask before = problem.spec.mask;
          problem.add_dense_mask({chance(2) ? 1 : sizes.B, chance(2) ? 1 : sizes.Hq, chance(3) ? 1 : sizes.Lq,
                                  chance(5) ? 1 : sizes.Lk},
                                 chance(2) ? 0.05 : (chance(2) ? 0.5 : 0.97));
          if (chance(2) && problem.mask.size() > 64) {  // stretches of words that are all on and all off
            const auto third = static_cast<std::ptrdiff_t>(problem.mask.size() / 3);
            std::fill(problem.mask.begin(), problem.mask.begin() + third, uint8_t{1});
            std::fill(problem.mask.end() - third, problem.mask.end(), uint8_t{0});
          }
          problem.spec.mask = before;
        }
        return Mask::dense();
    }
  };
  const auto term = [&] {
    Mask all = any_part();
    for (int64_t more = pick({0, 0, 1, 1, 2}); more > 0; --more) all = all & any_part();
    return all;
  };
  Mask mask = term();
  for (int64_t more = pick({0, 0, 0, 1, 1, 2}); more > 0; --more) mask = mask | term();
  problem.spec.mask = problem.spec.mask & mask;
  // Data whose part another alternative made superfluous is not given.
  if (!problem.spec.mask.uses_key_lengths()) problem.lengths.clear();
  if (!problem.spec.mask.uses_dense()) problem.mask.clear();
  if (!problem.spec.mask.uses<part::Blocks>()) problem.blocks.clear();
  if (!problem.spec.mask.uses<part::Segments>()) {
    problem.query_segments.clear();
    problem.key_segments.clear();
  }
}

Problem random_call(uint64_t seed) {
  std::mt19937_64 random(seed * 7919);
  const auto pick = [&](std::initializer_list<int64_t> of) { return *(of.begin() + random() % of.size()); };
  const auto chance = [&](int64_t n) { return random() % n == 0; };
  Sizes sizes;
  sizes.B = pick({1, 1, 2});
  sizes.Hkv = pick({1, 2});
  sizes.Hq = sizes.Hkv * pick({1, 1, 3, 4});
  sizes.Lq = pick({1, 1, 2, 5, 6, 7, 11, 12, 13, 23, 24, 25, 48, 61});
  sizes.Lk = pick({1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 128, 131, 257});
  if (chance(6)) sizes.Lq = sizes.Lk = pick({1, 3, 5, 8}) * pick({2, 5, 7, 13});  // may be a grid
  sizes.Dk = pick({1, 2, 3, 7, 8, 16, 17, 40, 64, 65, 80, 96, 128});
  sizes.Dv = chance(2) ? sizes.Dk : pick({1, 3, 8, 15, 16, 17, 33, 64, 72, 128});
  const DType dtype = chance(2) ? DType::f32 : (chance(2) ? DType::bf16 : DType::f16);
  const auto layout = static_cast<Layout>(random() % 4);
  Problem problem(sizes, seed, dtype, layout);
  if (!chance(4)) add_random_mask(problem, random);
  if (chance(4)) problem.spec.softcap = 3;
  if (chance(4)) problem.spec.scale = 0.7;
  if (chance(4)) {
    problem.add_bias({chance(2) ? 1 : sizes.B, chance(2) ? 1 : sizes.Hq, chance(3) ? 1 : sizes.Lq,
                      chance(5) ? 1 : sizes.Lk});
  }
  if (chance(5)) problem.add_slopes();
  if (chance(5)) problem.add_sinks();
  if (chance(5)) {
    problem.spec.dropout = chance(2) ? 0.1 : 0.5;
    problem.dropout_seed = random();
    problem.dropout_offset = random();
  }
  return problem;
}

std::vector<uint64_t> property_seeds(uint64_t count) {
  if (const char* seed = std::getenv("REGARD_SEED")) return {std::strtoull(seed, nullptr, 10)};
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  count = (count + 9) / 10;  // ten times as slow
#endif
  if (const char* most = std::getenv("REGARD_SEEDS"))
    count = std::min<uint64_t>(count, std::strtoull(most, nullptr, 10));
  std::vector<uint64_t> seeds(count);
  for (uint64_t i = 0; i < count; ++i) seeds[i] = i + 1;
  return seeds;
}

std::string describe(uint64_t seed, Problem& problem) {
  const attention::Operands operands = problem.operands();
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  return problem.sizes.to_string() + ", " + kernel::name(operands.q.dtype) + ", " + problem.spec.to_string() +
         "\nRepeat with: REGARD_SEED=" + std::to_string(seed) +
         " regard_attention_tests --gtest_filter=" + test.test_suite_name() + "." + test.name();
}

}  // namespace regard::testing
