// Norms against their formulas in float64, gradients included, on every instruction set.
#include "regard/kernel/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "../attention/target_test.h"

namespace regard::kernel {
namespace {

using Numbers = std::vector<double>;

std::vector<float> random_numbers(int64_t count, uint32_t seed, float middle, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(middle, spread);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = normal(random);
  return x;
}

// y = norm(x) weight + bias of one row.
Numbers reference(NormForm form, const Numbers& x, const std::vector<float>& weight,
                  const std::vector<float>& bias, double epsilon) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, squares = 0;
  if (form != NormForm::rms)
    for (const double v : x) mean += v / n;
  for (const double v : x) squares += (v - mean) * (v - mean);
  const double below =
      form == NormForm::harvard ? std::sqrt(squares / (n - 1)) + epsilon : std::sqrt(squares / n + epsilon);
  Numbers y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = (x[i] - mean) / below;
    if (!weight.empty()) y[i] *= weight[i];
    if (!bias.empty()) y[i] += bias[i];
  }
  return y;
}

class NormKernel : public testing::EachTarget {
 protected:
  Serial serial_;
};

const std::vector<std::pair<int64_t, int64_t>> kSizes = {{1, 2},   {3, 7},    {2, 8},
                                                         {65, 17}, {130, 33}, {5, 256}};

TEST_P(NormKernel, IsItsFormulaForAnyNumberOfThreads) {
  for (const NormForm form : {NormForm::layer, NormForm::rms, NormForm::harvard})
    for (const auto& [rows, n] : kSizes)
      for (const bool affine : {false, true}) {
        // Far from zero: the mean must not eat the digits of the deviation.
        const auto x = random_numbers(rows * n, 1, 5.0F, 1.0F);
        const auto weight = affine ? random_numbers(n, 2, 1, 0.5F) : std::vector<float>();
        const auto bias = affine && form != NormForm::rms ? random_numbers(n, 3, 0, 1) : std::vector<float>();
        const NormRows call{.form = form,
                            .x = x.data(),
                            .rows = rows,
                            .n = n,
                            .weight = weight.empty() ? nullptr : weight.data(),
                            .bias = bias.empty() ? nullptr : bias.data(),
                            .epsilon = 1e-5};
        std::vector<float> out(x.size()), again(x.size());
        norm(call, out.data(), serial_);
        for (int64_t r = 0; r < rows; ++r) {
          const Numbers want =
              reference(form, Numbers(x.begin() + r * n, x.begin() + (r + 1) * n), weight, bias, 1e-5);
          for (int64_t i = 0; i < n; ++i)
            ASSERT_NEAR(out[static_cast<size_t>(r * n + i)], want[static_cast<size_t>(i)], 2e-5)
                << rows << " x " << n;
        }
        ThreadPool pool(3);
        norm(call, again.data(), pool);
        EXPECT_EQ(out, again);
      }
}

TEST_P(NormKernel, GradientsAreDifferencesOfTheFormula) {
  for (const NormForm form : {NormForm::layer, NormForm::rms, NormForm::harvard})
    for (const auto& [rows, n] : kSizes) {
      const auto x = random_numbers(rows * n, 4, 0.5F, 1.0F), grad = random_numbers(rows * n, 5, 0, 1);
      auto weight = random_numbers(n, 6, 1, 0.5F);
      const auto bias = random_numbers(n, 7, 0, 1);
      const NormRows call{.form = form,
                          .x = x.data(),
                          .rows = rows,
                          .n = n,
                          .weight = weight.data(),
                          .bias = nullptr,
                          .epsilon = 1e-3};
      std::vector<float> grad_x(x.size()), again(x.size());
      std::vector<double> sums, sums_again;
      norm_backward(call, grad.data(), grad_x.data(), sums, serial_);
      const auto value = [&](int64_t r, const Numbers& row) {
        const Numbers y = reference(form, row, weight, {}, 1e-3);
        double sum = 0;
        for (size_t i = 0; i < y.size(); ++i) sum += y[i] * grad[static_cast<size_t>(r * n) + i];
        return sum;
      };
      Numbers of_weight(static_cast<size_t>(n)), of_bias(static_cast<size_t>(n));
      for (int64_t r = 0; r < rows; ++r) {
        const Numbers row(x.begin() + r * n, x.begin() + (r + 1) * n);
        const Numbers y = reference(form, row, {}, {}, 1e-3);
        for (int64_t i = 0; i < n; ++i) {
          const auto at = static_cast<size_t>(i);
          of_weight[at] += y[at] * grad[static_cast<size_t>(r * n + i)];
          of_bias[at] += grad[static_cast<size_t>(r * n + i)];
          if (r > 2) continue;  // differences of the first rows
          Numbers up = row, down = row;
          up[at] += 1e-5;
          down[at] -= 1e-5;
          const double want = (value(r, up) - value(r, down)) / 2e-5;
          ASSERT_NEAR(grad_x[static_cast<size_t>(r * n + i)], want, 2e-5 * (1 + std::abs(want)))
              << rows << " x " << n;
        }
      }
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(i);
        EXPECT_NEAR(sums[at], of_weight[at], 2e-5 * (1 + std::sqrt(static_cast<double>(rows))));
        if (form == NormForm::rms) continue;
        EXPECT_NEAR(sums[static_cast<size_t>(n + i)], of_bias[at],
                    2e-5 * (1 + std::sqrt(static_cast<double>(rows))));
      }
      ThreadPool pool(2);
      norm_backward(call, grad.data(), again.data(), sums_again, pool);
      EXPECT_EQ(grad_x, again);
      EXPECT_EQ(sums, sums_again);
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, NormKernel, ::testing::ValuesIn(runnable_targets()));

}  // namespace
}  // namespace regard::kernel
