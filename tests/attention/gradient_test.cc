#include <gtest/gtest.h>

#include "regard/attention/reference.h"
#include "tests/attention/problem.h"
#include "tests/support/compare.h"

namespace regard::attention {
namespace {

using testing::is_close;
using testing::Problem;
using testing::Tensor;

// Everything at once: cap, bias, ALiBi, sinks, GQA, Dk != Dv, masks, and a gradient that arrives at LSE.
Problem everything() {
  Problem problem({.B = 2, .Hq = 4, .Hkv = 2, .Lq = 5, .Lk = 6, .Dk = 3, .Dv = 2}, 11);
  problem.spec.softcap = 2;
  problem.spec.mask = Mask::causal(Align::bottom_right);
  problem.add_bias({1, 4, 5, 6});
  problem.add_slopes();
  problem.add_sinks();
  problem.add_dense_mask({2, 1, 5, 6}, 0.8);
  return problem;
}

struct Loss {
  std::vector<double> grad_out, grad_lse;

  double operator()(Problem& problem) const {
    const Reference forward = reference(problem.spec, problem.operands());
    double loss = 0;
    for (size_t i = 0; i < grad_out.size(); ++i) loss += grad_out[i] * forward.out[i];
    for (size_t i = 0; i < grad_lse.size(); ++i) {
      if (std::isfinite(forward.lse[i])) loss += grad_lse[i] * forward.lse[i];
    }
    return loss;
  }
};

std::vector<double> normal(size_t count, std::mt19937_64& random) {
  std::normal_distribution<double> draw;
  std::vector<double> values(count);
  for (double& value : values) value = draw(random);
  return values;
}

// Central differences in the float32 inputs themselves; the steps taken are the exact ones.
std::vector<double> differences(Problem& problem, Tensor& input, const Loss& loss) {
  std::vector<double> slopes;
  const kernel::Extents size = input.size();
  for (int64_t at = 0; at < size[0] * size[1] * size[2] * size[3]; ++at) {
    const int64_t f = at % size[3];
    const int64_t p = at / size[3] % size[2];
    const int64_t h = at / size[3] / size[2] % size[1];
    const int64_t b = at / size[3] / size[2] / size[1];
    const float middle = input.get(b, h, p, f);
    const float above = middle + 1e-3F;
    const float below = middle - 1e-3F;
    input.set(b, h, p, f, above);
    const double high = loss(problem);
    input.set(b, h, p, f, below);
    const double low = loss(problem);
    input.set(b, h, p, f, middle);
    slopes.push_back((high - low) / (static_cast<double>(above) - static_cast<double>(below)));
  }
  return slopes;
}

TEST(ReferenceBackward, EqualsFiniteDifferencesOfTheForward) {
  Problem problem = everything();
  Loss loss;
  loss.grad_out = normal(2 * 4 * 5 * 2, problem.random);
  loss.grad_lse = normal(2 * 4 * 5, problem.random);
  const ReferenceGradients grad =
      reference_backward(problem.spec, problem.operands(), loss.grad_out, loss.grad_lse);
  const testing::Bound bound{1e-6, 1e-6};  // the step's square
  EXPECT_TRUE(is_close(differences(problem, problem.q, loss), grad.q, bound, 1));
  EXPECT_TRUE(is_close(differences(problem, problem.k, loss), grad.k, bound, 1));
  EXPECT_TRUE(is_close(differences(problem, problem.v, loss), grad.v, bound, 1));
  // bias, slopes and sinks are shared by the batch entries.
  const auto over_batch = [](const std::vector<double>& full) {
    std::vector<double> sum(full.size() / 2);
    for (size_t i = 0; i < full.size(); ++i) sum[i % sum.size()] += full[i];
    return sum;
  };
  EXPECT_TRUE(is_close(differences(problem, problem.bias, loss), over_batch(grad.bias), bound, 1));
  EXPECT_TRUE(is_close(differences(problem, problem.slopes, loss), over_batch(grad.slopes), bound, 1));
  EXPECT_TRUE(is_close(differences(problem, problem.sinks, loss), over_batch(grad.sinks), bound, 1));
}

TEST(ReferenceBackward, OfLseAloneIsScaledWeightsTimesTheOtherSide) {
  Problem problem({.Lq = 3, .Lk = 4, .Dk = 5, .Dv = 2}, 5);
  const Reference forward = reference(problem.spec, problem.operands());
  const ReferenceGradients grad = reference_backward(
      problem.spec, problem.operands(), std::vector<double>(6, 0.0), std::vector<double>(3, 1.0));
  std::vector<double> q(3 * 5, 0.0);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      for (int64_t d = 0; d < 5; ++d) {
        q[i * 5 + d] += forward.weights[i * 4 + j] * problem.k.get(0, 0, j, d) / std::sqrt(5.0);
      }
    }
  }
  EXPECT_TRUE(is_close(grad.q, q, {1e-12, 1e-12}));
  EXPECT_TRUE(is_close(grad.v, std::vector<double>(8, 0.0), {0, 0}));
}

TEST(ReferenceBackward, NothingLeaksThroughAMaskedPair) {
  Problem problem({.Lq = 4, .Lk = 4, .Dk = 3, .Dv = 2}, 6);
  problem.spec.mask = Mask::causal(Align::top_left);
  std::vector<double> grad_out = normal(8, problem.random);
  const ReferenceGradients clean = reference_backward(problem.spec, problem.operands(), grad_out);
  for (int64_t d = 0; d < 3; ++d) problem.k.set(0, 0, 3, d, std::numeric_limits<float>::quiet_NaN());
  problem.v.set(0, 0, 3, 0, std::numeric_limits<float>::infinity());
  grad_out[6] = std::numeric_limits<double>::quiet_NaN();  // row 3, the only one that sees key 3
  const ReferenceGradients poisoned = reference_backward(problem.spec, problem.operands(), grad_out);
  for (int64_t at = 0; at < 3 * 3; ++at) EXPECT_EQ(poisoned.q[at], clean.q[at]) << "rows 0 to 2, " << at;
  EXPECT_TRUE(std::isnan(poisoned.q[3 * 3]));
}

TEST(ReferenceBackward, RefusesGradientsOfOtherSizes) {
  Problem problem({.Lq = 3, .Lk = 4, .Dk = 5, .Dv = 2}, 5);
  EXPECT_THROW(reference_backward(problem.spec, problem.operands(), std::vector<double>(5)),
               std::invalid_argument);
  EXPECT_THROW(
      reference_backward(problem.spec, problem.operands(), std::vector<double>(6), std::vector<double>(2)),
      std::invalid_argument);
}

}  // namespace
}  // namespace regard::attention
