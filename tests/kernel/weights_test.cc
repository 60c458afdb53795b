#include <gtest/gtest.h>

#include "tests/kernel/problem.h"

namespace regard::kernel::testing {
namespace {

class WeightsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { select_target(GetParam()); }
  void TearDown() override { select_target(""); }
};

TEST_P(WeightsTest, AnyTileEqualsTheDefinition) {
  const int64_t rows = 29, keys = 71, dk = 19, dv = 5;
  auto q = make_tensor<float>({2, 4, rows, dk}, Layout::position_major, kNan);
  auto k = make_tensor<float>({2, 2, keys, dk}, Layout::features_apart, kNan);
  auto v = make_tensor<float>({2, 2, keys, dv}, Layout::contiguous, kNan);
  auto out = make_tensor<float>({2, 4, rows, dv}, Layout::contiguous, 0.0F);
  auto lse = make_tensor<float>({2, 4, rows, 1}, Layout::contiguous, 0.0F);
  auto bias = make_tensor<float>({2, 4, rows, keys}, Layout::position_major, kNan);
  auto sinks = make_tensor<float>({2, 4, 1, 1}, Layout::contiguous, 0.5F);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  each(q, [&](float& x, auto...) { x = 2 * normal(random); });
  each(k, [&](float& x, auto...) { x = normal(random); });
  each(v, [&](float& x, auto...) { x = normal(random); });
  each(bias, [&](float& x, auto...) { x = normal(random); });
  const PredicateMask mask{
      [](int64_t, int64_t h, int64_t i, int64_t j) { return i != 7 && j <= i + 40 && (j + h) % 7 != 3; },
      keys};
  Forward p;
  p.q = q.view();
  p.k = k.view();
  p.v = v.view();
  p.out = out.view();
  p.lse = lse.view();
  p.bias = bias.view();
  p.sinks = sinks.view();
  p.scale = 0.3F;
  p.softcap = 4.0F;
  p.mask = mask.lowered();
  const ForwardTiling tiling;
  Workspace workspace(forward_workspace(p, tiling, 1));
  Serial serial;
  forward(p, tiling, workspace.span(), serial);
  const Expected e = expect<float>(p);
  for (const auto& [row, count, key, width] : std::vector<std::array<int64_t, 4>>{{0, rows, 0, keys},
                                                                                  {5, 7, 3, 33},
                                                                                  {28, 1, 70, 1},
                                                                                  {7, 1, 0, keys},
                                                                                  {0, 0, 0, 5},
                                                                                  {11, 13, 16, 16}}) {
    std::vector<float> weights(static_cast<size_t>(count * width + 1), 77.0F);
    std::vector<float> logits(weights);
    weights_tile(p, lse.view(), 1, 3, row, count, key, width, weights.data());
    weights_tile(p, lse.view(), 1, 3, row, count, key, width, logits.data(), true);
    EXPECT_EQ(weights.back(), 77.0F);
    EXPECT_EQ(logits.back(), 77.0F);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < width; ++j) {
        const auto at = static_cast<size_t>(i * width + j);
        const double want = e.weights[static_cast<size_t>(((1 * 4 + 3) * rows + row + i) * keys + key + j)];
        EXPECT_NEAR(weights[at], want, 1e-6);
        if (mask.sees(1, 3, row + i, key + j)) {
          double dot = 0;
          for (int64_t f = 0; f < dk; ++f)
            dot += static_cast<double>(q(1, 3, row + i, f)) * k(1, 1, key + j, f);
          EXPECT_NEAR(logits[at], logit(p, 1, 3, row + i, key + j, dot), 4e-6);
        } else {
          EXPECT_EQ(weights[at], 0.0F);
          EXPECT_EQ(logits[at], -kInf);
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, WeightsTest, ::testing::ValuesIn(runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::kernel::testing
