#include <gtest/gtest.h>

#include "regard/attention/attention.h"
#include "regard/attention/reference.h"
#include "tests/attention/problem.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

namespace regard::attention {
namespace {

using kernel::DType;
using testing::is_close;
using testing::Layout;
using testing::Problem;
using testing::Sizes;
using testing::Tensor;

// Random calls over shapes around the tiles' edges, types, layouts, masks and options.
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
  return problem;
}

class Property : public testing::OnTarget<::testing::TestWithParam<std::string>> {
 protected:
  void SetUp() override { use(GetParam()); }
};

TEST_P(Property, RandomCallsStayWithinTheErrorBoundOfTheReference) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Problem problem = random_call(seed);
    const Operands operands = problem.operands();
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + problem.sizes.to_string() + ", " +
                 kernel::name(operands.q.dtype) + ", " + problem.spec.to_string());
    const Reference plain = reference(problem.spec, operands);
    const testing::Bound bound = testing::float32_bound(testing::largest_finite(plain.logits));
    attention(problem.spec, operands);
    ASSERT_TRUE(is_close(problem.out.values(), plain.out, bound));
    ASSERT_TRUE(is_close(problem.lse.values(), plain.lse, bound, 1.0));
  }
}

// A result in 16 bits: at most twice the error of rounding the right one once.
TEST_P(Property, ResultsInSixteenBitsAreRoundedOnce) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Problem problem({.B = 1, .Hq = 4, .Hkv = 2, .Lq = 50, .Lk = 130, .Dk = 64, .Dv = 64}, 9, dtype);
    Operands operands = problem.operands();
    Tensor out(dtype, operands.out.size);
    operands.out = out.view();
    attention(problem.spec, operands);
    const Reference plain = reference(problem.spec, operands);
    Tensor rounded(dtype, operands.out.size);
    size_t at = 0;
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t i = 0; i < 50; ++i) {
        for (int64_t d = 0; d < 64; ++d) rounded.set(0, h, i, d, static_cast<float>(plain.out[at++]));
      }
    }
    const auto rms = [&](const std::vector<float>& values) {
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        sum += (values[i] - plain.out[i]) * (values[i] - plain.out[i]);
      }
      return std::sqrt(sum);
    };
    EXPECT_LE(rms(out.values()), 2 * rms(rounded.values())) << kernel::name(dtype);
    EXPECT_GT(rms(rounded.values()), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Property, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::attention
