// One step of Adam against its formula in float64; the bits do not depend on the threads.
#include "regard/kernel/adam.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "../attention/target_test.h"

namespace regard::kernel {
namespace {

class Adam : public testing::EachTarget {
 protected:
  static std::vector<float> draw(int64_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> x(static_cast<size_t>(n));
    for (float& value : x) value = normal(random);
    return x;
  }
  Serial serial_;
};

const AdamStep kHow{.scale = 0.5F,
                    .coupled_decay = 0.25F,
                    .keep = 0.9F,
                    .beta1 = 0.75F,
                    .rest1 = 0.25F,
                    .beta2 = 0.875F,
                    .rest2 = 0.125F,
                    .step = 0.125F,
                    .root = 0.5F,
                    .epsilon = 1e-3F};

TEST_P(Adam, IsItsFormulaForAnyNumberOfThreads) {
  const std::vector<int64_t> sizes = {1, 7, 8, 33, 70001};
  std::vector<std::vector<float>> value, first, second, gradient;
  for (const int64_t n : sizes) {
    value.push_back(draw(n, 1));
    gradient.push_back(draw(n, 2));
    first.push_back(draw(n, 3));
    second.push_back(draw(n, 4));
    for (float& v : second.back()) v = v * v;
  }
  const auto before = value, first_before = first, second_before = second;
  const auto run = [&](Parallel& parallel) {
    std::vector<AdamSpan> spans;
    for (size_t s = 0; s < sizes.size(); ++s)
      spans.push_back(
          {kHow, value[s].data(), gradient[s].data(), first[s].data(), second[s].data(), sizes[s]});
    adam(spans, parallel);
  };
  run(serial_);
  for (size_t s = 0; s < sizes.size(); ++s)
    for (size_t i = 0; i < value[s].size(); ++i) {
      const double p = before[s][i], g = 0.5 * gradient[s][i] + 0.25 * p;
      const double m = 0.75 * first_before[s][i] + 0.25 * g, v = 0.875 * second_before[s][i] + 0.125 * g * g;
      ASSERT_NEAR(first[s][i], m, 1e-6 * (1 + std::abs(m)));
      ASSERT_NEAR(second[s][i], v, 1e-6 * (1 + v));
      ASSERT_NEAR(value[s][i], 0.9 * p - 0.125 * m / (std::sqrt(v) / 0.5 + 1e-3), 2e-6 * (1 + std::abs(p)));
    }
  const auto after = value;
  for (const int threads : {2, 3, 5}) {
    value = before;
    first = first_before;
    second = second_before;
    ThreadPool pool(threads);
    run(pool);
    EXPECT_EQ(value, after);
  }
}

TEST_P(Adam, SquaresAreSummedInOneOrder) {
  const auto a = draw(100003, 5), b = draw(5, 6);
  double want = 0;
  for (const float v : a) want += static_cast<double>(v) * v;
  for (const float v : b) want += static_cast<double>(v) * v;
  const std::vector<ConstSpan> spans = {{a.data(), 100003}, {b.data(), 5}};
  const double got = sum_of_squares(spans, serial_);
  EXPECT_NEAR(got, want, 1e-6 * want);
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(sum_of_squares(spans, pool), got);
  }
  EXPECT_EQ(sum_of_squares({}, serial_), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Targets, Adam, ::testing::ValuesIn(runnable_targets()));

}  // namespace
}  // namespace regard::kernel
