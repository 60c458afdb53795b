#include "tests/attention/random_call.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace regard::testing {

using attention::Align;
using attention::Mask;
using kernel::DType;

Problem random_call(uint64_t seed) {
  std::mt19937_64 random(seed * 7919);
  const auto pick = [&](std::initializer_list<int64_t> of) { return *(of.begin() + random() % of.size()); };
  const auto chance = [&](int64_t n) { return random() % n == 0; };
  const auto align = [&] { return chance(2) ? Align::top_left : Align::bottom_right; };
  Sizes sizes;
  sizes.B = pick({1, 1, 2});
  sizes.Hkv = pick({1, 2});
  sizes.Hq = sizes.Hkv * pick({1, 1, 3, 4});
  sizes.Lq = pick({1, 1, 2, 5, 6, 7, 11, 12, 13, 23, 24, 25, 48, 61});
  sizes.Lk = pick({1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 128, 131, 257});
  sizes.Dk = pick({1, 2, 3, 7, 8, 16, 17, 40, 64, 65, 80, 96, 128});
  sizes.Dv = chance(2) ? sizes.Dk : pick({1, 3, 8, 15, 16, 17, 33, 64, 72, 128});
  const DType dtype = chance(2) ? DType::f32 : (chance(2) ? DType::bf16 : DType::f16);
  const auto layout = static_cast<Layout>(random() % 4);
  Problem problem(sizes, seed, dtype, layout);
  Mask& mask = problem.spec.mask;
  if (chance(3)) mask = mask & Mask::causal(align());
  if (chance(3)) mask = mask & Mask::window(pick({-1, 0, 1, 9, 40}), pick({-1, 0, 3, 50}), align());
  if (chance(4)) problem.add_key_lengths();
  if (chance(3)) {
    problem.add_dense_mask({chance(2) ? 1 : sizes.B, chance(2) ? 1 : sizes.Hq, chance(3) ? 1 : sizes.Lq,
                            chance(5) ? 1 : sizes.Lk},
                           chance(2) ? 0.1 : 0.8);
  }
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
