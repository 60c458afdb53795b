#include <gtest/gtest.h>

#include <tuple>

#include "regard/attention/attention.h"
#include "regard/attention/observe.h"
#include "regard/attention/reference.h"
#include "tests/attention/golden_case.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

namespace regard::attention {
namespace {

using testing::Bound;
using testing::float32_bound;
using testing::GoldenCase;
using testing::is_close;

// Every case of tests/golden/attention through the kernels of every instruction set.
class KernelGolden : public testing::EachTargetAndCase {
 protected:
  GoldenCase load() const { return GoldenCase(std::get<1>(GetParam())); }
};

struct Computed {
  explicit Computed(GoldenCase& c) {
    const kernel::Extents& q = c.operands.q.size;
    out.assign(q[0] * q[1] * q[2] * c.operands.v.size[3], -1.0F);
    lse.assign(q[0] * q[1] * q[2], -1.0F);
    c.operands.out = View<float>(out.data(), {q[0], q[1], q[2], c.operands.v.size[3]});
    c.operands.lse = {lse.data(), {q[0], q[1], q[2], 1}};
    attention(c.spec, c.operands);
    const Reference plain = reference(c.spec, c.operands);
    weights = plain.weights;
    logits = plain.logits;
    bound = float32_bound(testing::largest_finite(plain.logits));
  }
  std::vector<float> out, lse;
  std::vector<double> weights, logits;
  Bound bound;
};

TEST_P(KernelGolden, OutAndLse) {
  GoldenCase c = load();
  const Computed run(c);
  EXPECT_TRUE(is_close(run.out, c.expected("O"), run.bound));
  EXPECT_TRUE(is_close(run.lse, c.expected("LSE"), run.bound, 1.0));
}

TEST_P(KernelGolden, RecomputedWeightsAndLogits) {
  GoldenCase c = load();
  const Computed run(c);
  const auto [B, H, Lq, Lk] =
      kernel::Extents{c.operands.q.size[0], c.operands.q.size[1], c.operands.q.size[2], c.operands.k.size[2]};
  std::vector<float> tiles;
  std::vector<float> scores;
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t h = 0; h < H; ++h) {
      for (const float p : weights(c.spec, c.operands, c.operands.lse, b, h, 0, Lq, 0, Lk))
        tiles.push_back(p);
      for (const float s : logits(c.spec, c.operands, b, h, 0, Lq, 0, Lk)) scores.push_back(s);
    }
  }
  EXPECT_TRUE(is_close(tiles, run.weights, run.bound));
  EXPECT_TRUE(is_close(scores, run.logits, run.bound));
}

TEST_P(KernelGolden, Observation) {
  GoldenCase c = load();
  const Computed run(c);
  const int64_t k = std::min<int64_t>(3, c.operands.k.size[2]);
  const Observation seen =
      observe({.entropy = true, .row_max = true, .column_sums = true, .top_k = k}, c.spec, c.operands);
  // The rounding of lse and of each ln p: the entropy's own size counts.
  EXPECT_TRUE(is_close(seen.entropy, c.expected("entropy"), run.bound, 1.0));
  EXPECT_TRUE(is_close(seen.column_sums, c.expected("column_sum"), run.bound));
  if (k == 0) return;
  EXPECT_TRUE(is_close(seen.top_weights, c.expected("top3_value"), run.bound));
  // Keys may change places only where the weights are equal to the kernel's rounding.
  const std::vector<int64_t> keys = c.file["top3_index"].to<int64_t>();
  const std::vector<double> values = c.expected("top3_value");
  ASSERT_EQ(seen.top_keys.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (seen.top_keys[i] == keys[i]) continue;
    ASSERT_GE(keys[i], 0) << "entry " << i;
    ASSERT_GE(seen.top_keys[i], 0) << "entry " << i;
    const int64_t row = static_cast<int64_t>(i) / k;
    const double ours = run.weights[row * c.operands.k.size[2] + seen.top_keys[i]];
    EXPECT_NEAR(ours, values[i], run.bound.max) << "entry " << i << ": key " << seen.top_keys[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, KernelGolden,
                         ::testing::Combine(::testing::ValuesIn(kernel::runnable_targets()),
                                            ::testing::ValuesIn(testing::golden_names())),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace regard::attention
