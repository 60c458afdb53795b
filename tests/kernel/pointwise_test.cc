#include "regard/kernel/pointwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "../attention/target_test.h"

namespace regard::kernel {
namespace {

std::vector<float> random_numbers(int64_t count, uint32_t seed, float spread = 3.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = normal(random);
  return x;
}

class Pointwise : public testing::EachTarget {
 protected:
  Serial serial_;
};

// Sizes around the vectors' lengths, and one that is shared among threads.
const std::vector<std::pair<int64_t, int64_t>> kSizes = {{1, 1},  {2, 7},  {3, 8},
                                                         {1, 17}, {5, 33}, {130, 576}};

TEST_P(Pointwise, GatedSiluIsItsFormulaForAnyNumberOfThreads) {
  for (const auto& [rows, features] : kSizes) {
    auto both = random_numbers(rows * 2 * features, 3, 10.0F);
    both[0] = -200.0F;
    std::vector<float> out(static_cast<size_t>(rows * features)), again(out.size());
    gated_silu(both.data(), both.data() + features, 2 * features, rows, features, out.data(), serial_);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t c = 0; c < features; ++c) {
        const double gate = both[static_cast<size_t>(i * 2 * features + c)];
        const double want =
            gate / (1 + std::exp(-gate)) * both[static_cast<size_t>((i * 2 + 1) * features + c)];
        EXPECT_NEAR(out[static_cast<size_t>(i * features + c)], want,
                    (1e-6 + 2e-7 * std::abs(gate)) * std::abs(want) + 1e-30);  // the exponent rounds
      }
    ThreadPool pool(2);
    gated_silu(both.data(), both.data() + features, 2 * features, rows, features, again.data(), pool);
    EXPECT_EQ(out, again);
  }
  const float nan = NAN, one = 1.0F;
  float out = 0;
  gated_silu(&nan, &one, 1, 1, 1, &out, serial_);
  EXPECT_TRUE(std::isnan(out));
}

TEST_P(Pointwise, GatedSiluHasTheGradientsOfItsFormulaForAnyNumberOfThreads) {
  for (const auto& [rows, features] : kSizes) {
    const auto both = random_numbers(rows * 2 * features, 5, 4.0F), grad = random_numbers(rows * features, 6);
    std::vector<float> out(both.size()), again(both.size());
    gated_silu_backward(both.data(), both.data() + features, 2 * features, grad.data(), rows, features,
                        out.data(), out.data() + features, serial_);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t c = 0; c < features; ++c) {
        const auto at = static_cast<size_t>(i * 2 * features + c), up_at = at + static_cast<size_t>(features);
        const double gate = both[at], up = both[up_at], g = grad[static_cast<size_t>(i * features + c)];
        const double sigmoid = 1 / (1 + std::exp(-gate));
        EXPECT_NEAR(out[at], g * up * sigmoid * (1 + gate * (1 - sigmoid)), 2e-6 * (1 + std::abs(g * up)));
        EXPECT_NEAR(out[up_at], g * gate * sigmoid, 2e-6 * (1 + std::abs(g * gate)));
      }
    ThreadPool pool(3);
    gated_silu_backward(both.data(), both.data() + features, 2 * features, grad.data(), rows, features,
                        again.data(), again.data() + features, pool);
    EXPECT_EQ(out, again);
  }
}

TEST_P(Pointwise, RotationTurnsEachPairByItsAngleForAnyStrides) {
  constexpr int64_t kBatch = 2, kLength = 70;
  for (const auto& [heads, half] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {2, 32}, {9, 16}}) {
    const int64_t size = 2 * half;
    const auto x = random_numbers(kBatch * kLength * (heads + 1) * size, 4);
    // [B, L, heads + 1, D] with one head left out.
    const View<const float> view(x.data(), {kBatch, heads, kLength, size},
                                 {kLength * (heads + 1) * size, size, (heads + 1) * size, 1});
    std::vector<float> cos, sin;
    for (int64_t i = 0; i < kLength * half; ++i) {
      cos.push_back(std::cos(static_cast<float>(i)));
      sin.push_back(std::sin(static_cast<float>(i)));
    }
    std::vector<float> out(static_cast<size_t>(kBatch * heads * kLength * size)), again(out.size());
    rotate_halves(view, cos.data(), sin.data(), View<float>(out.data(), {kBatch, heads, kLength, size}),
                  serial_);
    ThreadPool pool(3);
    const View<float> to(again.data(), {kBatch, heads, kLength, size});
    rotate_halves(view, cos.data(), sin.data(), to, pool);
    EXPECT_EQ(out, again);
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t p = 0; p < kLength; ++p)
          for (int64_t i = 0; i < half; ++i) {
            const double c = cos[static_cast<size_t>(p * half + i)],
                         s = sin[static_cast<size_t>(p * half + i)];
            const double low = view(b, h, p, i), high = view(b, h, p, half + i);
            ASSERT_NEAR(to(b, h, p, i), low * c - high * s, 1e-5);
            ASSERT_NEAR(to(b, h, p, half + i), high * c + low * s, 1e-5);
          }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Pointwise, ::testing::ValuesIn(runnable_targets()));

}  // namespace
}  // namespace regard::kernel
