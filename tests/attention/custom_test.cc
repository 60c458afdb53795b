#include "regard/attention/custom.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "regard/attention/attention.h"
#include "regard/attention/reference.h"
#include "tests/attention/owned_gradients.h"
#include "tests/attention/problem.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

namespace regard::attention {
namespace {

using kernel::DType;
using testing::is_close;
using testing::OwnedGradients;
using testing::Problem;
using testing::Tensor;
using testing::to_doubles;

class Custom : public testing::EachTarget {};

// The caller's functions against a Spec that says the same, forward and backward. `said` and `written` hold
// the same q, k and v.
template <class Score, class Mask>
void expect_same(Problem& said, Problem& written, const Score& score, const Mask& mask) {
  Tensor grad_out(DType::f32, said.out.size());
  grad_out.fill_normal(said.random);
  const Operands call = written.operands();
  custom_attention(written.spec, call, score, mask);
  OwnedGradients grads(call);
  custom_backward(written.spec, call, score, mask, {grad_out.view(), {}}, grads.views());
  const Reference plain = reference(said.spec, said.operands());
  const ReferenceGradients gradients = reference_backward(said.spec, said.operands(), to_doubles(grad_out));
  const testing::Bound bound = testing::float32_bound(testing::largest_finite(plain.logits));
  EXPECT_TRUE(is_close(written.out.values(), plain.out, bound));
  EXPECT_TRUE(is_close(written.lse.values(), plain.lse, bound, 1.0));
  EXPECT_TRUE(is_close(grads.q.values(), gradients.q, bound, 1.0));
  EXPECT_TRUE(is_close(grads.k.values(), gradients.k, bound, 1.0));
  EXPECT_TRUE(is_close(grads.v.values(), gradients.v, bound, 1.0));
}

const testing::Sizes kSizes{.B = 2, .Hq = 4, .Hkv = 2, .Lq = 61, .Lk = 203, .Dk = 16, .Dv = 24};

TEST_P(Custom, ABiasWrittenAsAScoreIsThatBias) {
  Problem said(kSizes, 1);
  Problem written(kSizes, 1);
  said.add_bias({1, 4, 61, 203});
  const auto score = [&](auto s, int64_t /*b*/, int64_t h, int64_t i, int64_t j) {
    return s + said.bias.get(0, h, i, j);
  };
  expect_same(said, written, score, kNoMask);
}

TEST_P(Custom, ACapWrittenAsAScoreIsThatCap) {
  Problem said(kSizes, 2);
  Problem written(kSizes, 2);
  said.spec.softcap = 1.5F;
  const auto score = [](auto s, int64_t, int64_t, int64_t, int64_t) {
    using std::tanh;
    return 1.5F * tanh(s / 1.5F);
  };
  expect_same(said, written, score, kNoMask);
}

TEST_P(Custom, AScoreFollowsTheCapAndPrecedesTheBias) {
  Problem said(kSizes, 3);
  Problem written(kSizes, 3);
  said.spec.softcap = 3;
  written.spec.softcap = 3;
  written.add_bias({1, 1, 61, 203});
  said.bias = written.bias;
  for (int64_t i = 0; i < 61; ++i) {
    for (int64_t j = 0; j < 203; ++j) said.bias.set(0, 0, i, j, written.bias.get(0, 0, i, j) + 0.25F);
  }
  expect_same(
      said, written, [](auto s, int64_t, int64_t, int64_t, int64_t) { return s + 0.25F; }, kNoMask);
}

TEST_P(Custom, AMaskWrittenAsAFunctionIsThatMask) {
  Problem said(kSizes, 4);
  Problem written(kSizes, 4);
  said.spec.mask = Mask::causal(Align::bottom_right) & Mask::window(40, 0, Align::bottom_right);
  const auto identity = [](auto s, int64_t, int64_t, int64_t, int64_t) { return s; };
  expect_same(said, written, identity, [](int64_t, int64_t, int64_t i, int64_t j) {
    return j <= i + 203 - 61 && j >= i + 203 - 61 - 40;
  });
  // Half said, half written.
  written.spec.mask = Mask::causal(Align::bottom_right);
  expect_same(said, written, identity,
              [](int64_t, int64_t, int64_t i, int64_t j) { return j >= i + 203 - 61 - 40; });
}

// Dot products of four queries each with a curve that no Spec knows, against differences of the definition.
TEST_P(Custom, ACurvedScoreHasItsDerivative) {
  Problem problem({.B = 1, .Hq = 1, .Hkv = 1, .Lq = 4, .Lk = 9, .Dk = 3, .Dv = 2}, 5);
  const auto score = [](auto s, int64_t, int64_t, int64_t i, int64_t j) {
    using std::exp;
    using std::sqrt;
    return s * s * 0.3F - exp(s * 0.2F) / sqrt(s * s + 1.0F) + static_cast<float>(i - j) * 0.1F;
  };
  Tensor grad_out(DType::f32, problem.out.size());
  grad_out.fill_normal(problem.random);
  const Operands call = problem.operands();
  custom_attention(problem.spec, call, score, kNoMask);
  OwnedGradients grads(call);
  custom_backward(problem.spec, call, score, kNoMask, {grad_out.view(), {}}, grads.views());
  const auto loss = [&] {
    double total = 0;
    for (int64_t i = 0; i < 4; ++i) {
      std::vector<double> weights(9);
      double sum = 0;
      for (int64_t j = 0; j < 9; ++j) {
        double s = 0;
        for (int64_t d = 0; d < 3; ++d) {
          s +=
              static_cast<double>(problem.q.get(0, 0, i, d)) * static_cast<double>(problem.k.get(0, 0, j, d));
        }
        s /= std::sqrt(3.0);
        const double bent =
            s * s * 0.3 - std::exp(s * 0.2) / std::sqrt(s * s + 1.0) + static_cast<double>(i - j) * 0.1;
        weights[j] = std::exp(bent);
        sum += weights[j];
      }
      for (int64_t j = 0; j < 9; ++j) {
        for (int64_t d = 0; d < 2; ++d) {
          total += weights[j] / sum * static_cast<double>(problem.v.get(0, 0, j, d)) *
                   static_cast<double>(grad_out.get(0, 0, i, d));
        }
      }
    }
    return total;
  };
  const auto expect_slopes = [&](Tensor& input, const Tensor& gradient, int64_t positions) {
    for (int64_t p = 0; p < positions; ++p) {
      for (int64_t d = 0; d < 3; ++d) {
        const float middle = input.get(0, 0, p, d);
        input.set(0, 0, p, d, middle + 0.01F);
        const double high = loss();
        input.set(0, 0, p, d, middle - 0.01F);
        const double low = loss();
        input.set(0, 0, p, d, middle);
        EXPECT_NEAR(gradient.get(0, 0, p, d), (high - low) / 0.02, 2e-4);
      }
    }
  };
  expect_slopes(problem.q, grads.q, 4);
  expect_slopes(problem.k, grads.k, 9);
}

TEST_P(Custom, AnOddLengthWithAMaskAndAScoreHasNoNaN) {
  Problem problem({.B = 1, .Hq = 1, .Hkv = 1, .Lq = 1025, .Lk = 1025, .Dk = 8, .Dv = 8}, 6);
  const auto score = [](auto s, int64_t, int64_t, int64_t i, int64_t j) {
    return s + static_cast<float>(i - j);
  };
  const auto causal = [](int64_t, int64_t, int64_t i, int64_t j) { return j <= i; };
  Tensor grad_out(DType::f32, problem.out.size());
  grad_out.fill(1);
  const Operands call = problem.operands();
  custom_attention(problem.spec, call, score, causal);
  OwnedGradients grads(call);
  custom_backward(problem.spec, call, score, causal, {grad_out.view(), {}}, grads.views());
  for (const Tensor* gradient : {&grads.q, &grads.k, &grads.v}) {
    for (const float x : gradient->values()) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST_P(Custom, NothingLeaksThroughAPairThatTheFunctionHides) {
  Problem problem({.B = 1, .Hq = 1, .Hkv = 1, .Lq = 20, .Lk = 40, .Dk = 4, .Dv = 4}, 7);
  problem.k.set(0, 0, 33, 0, std::numeric_limits<float>::quiet_NaN());
  problem.v.set(0, 0, 33, 0, std::numeric_limits<float>::infinity());
  const auto identity = [](auto s, int64_t, int64_t, int64_t, int64_t) { return s; };
  const auto mask = [](int64_t, int64_t, int64_t, int64_t j) { return j != 33; };
  Tensor grad_out(DType::f32, problem.out.size());
  grad_out.fill(1);
  const Operands call = problem.operands();
  custom_attention(problem.spec, call, identity, mask);
  OwnedGradients grads(call);
  custom_backward(problem.spec, call, identity, mask, {grad_out.view(), {}}, grads.views());
  for (const float x : problem.out.values()) EXPECT_TRUE(std::isfinite(x));
  for (const float x : grads.q.values()) EXPECT_TRUE(std::isfinite(x));
  for (int64_t d = 0; d < 4; ++d) EXPECT_EQ(grads.k.get(0, 0, 33, d), 0.0F);
}

// One query goes to the decode kernel.
TEST_P(Custom, ServesASingleQuery) {
  const testing::Sizes sizes{.B = 1, .Hq = 4, .Hkv = 1, .Lq = 1, .Lk = 700, .Dk = 32, .Dv = 32};
  Problem said(sizes, 8);
  Problem written(sizes, 8);
  said.spec.softcap = 2;
  said.spec.mask = Mask::window(300, -1, Align::bottom_right);
  const auto score = [](auto s, int64_t, int64_t, int64_t, int64_t) {
    using std::tanh;
    return 2.0F * tanh(s / 2.0F);
  };
  expect_same(said, written, score, [](int64_t, int64_t, int64_t, int64_t j) { return j >= 399; });
}

INSTANTIATE_TEST_SUITE_P(Targets, Custom, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::attention
