// The inputs that broke other backwards (public issue trackers), each with its right value.
#include <gtest/gtest.h>

#include <cmath>

#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
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

class BackwardContract : public testing::EachTarget {};

// attention(), then backward() of `grad_out` and `grad_lse`, each of one value everywhere.
OwnedGradients gradients_of(Problem& problem, float grad_out, float grad_lse = 0) {
  Tensor arriving_out(DType::f32, problem.out.size());
  Tensor arriving_lse(DType::f32, problem.lse.size());
  arriving_out.fill(grad_out);
  arriving_lse.fill(grad_lse);
  const Operands call = problem.operands();
  attention(problem.spec, call);
  OwnedGradients gradients(call);
  backward(problem.spec, call, {arriving_out.view(), arriving_lse.as<const float>()}, gradients.views());
  return gradients;
}

std::vector<double> zeros(const Tensor& tensor) {
  return std::vector<double>(tensor.values().size(), 0.0);
}

// A row that sees nothing has no gradient and gives none (pytorch 103749, 160064).
TEST_P(BackwardContract, ARowThatSeesNothingHasZeroGradients) {
  Problem problem({.Lq = 4, .Lk = 4, .Dk = 8, .Dv = 8}, 1);
  problem.add_dense_mask({1, 1, 4, 4}, 1.0);
  for (int64_t j = 0; j < 4; ++j) problem.mask[2 * 4 + j] = 0;
  const OwnedGradients grads = gradients_of(problem, 1, 1);
  for (int64_t d = 0; d < 8; ++d) {
    EXPECT_EQ(grads.q.get(0, 0, 2, d), 0.0F);
    EXPECT_NE(grads.q.get(0, 0, 1, d), 0.0F);
  }
  for (const Tensor* tensor : {&grads.q, &grads.k, &grads.v}) {
    for (const float x : tensor->values()) EXPECT_TRUE(std::isfinite(x));
  }
}

// A bias of -100 on every logit moves LSE far below 0 and no gradient (pytorch 196678: NaN with a partial
// tile).
TEST_P(BackwardContract, AConstantBiasMovesNoGradient) {
  Problem plain({.Lq = 192, .Lk = 192, .Dk = 64, .Dv = 64}, 2);
  Problem moved({.Lq = 192, .Lk = 192, .Dk = 64, .Dv = 64}, 2);
  moved.add_bias({1, 1, 1, 1});
  moved.bias.fill(-100);
  const OwnedGradients a = gradients_of(plain, 1);
  const OwnedGradients b = gradients_of(moved, 1);
  EXPECT_LT(moved.lse.get(0, 0, 0, 0), -88.7F);
  // Logits near -100 keep 24 bits: weights to 1e-5.
  const testing::Bound bound{2e-5, 8e-5};
  EXPECT_TRUE(is_close(b.q.values(), to_doubles(a.q), bound, 1.0));
  EXPECT_TRUE(is_close(b.k.values(), to_doubles(a.k), bound, 1.0));
  EXPECT_TRUE(is_close(b.v.values(), to_doubles(a.v), bound, 1.0));
}

// One key (flash-attention 334): its weight is 1 whatever q says; three keys stay finite.
TEST_P(BackwardContract, OneKeyHasNoGradientBesideItsValue) {
  Problem one({.Lq = 5, .Lk = 1, .Dk = 8, .Dv = 4}, 3);
  const OwnedGradients grads = gradients_of(one, 1);
  EXPECT_TRUE(is_close(grads.q.values(), zeros(grads.q), {2e-6, 2e-6}, 1.0));
  EXPECT_TRUE(is_close(grads.k.values(), zeros(grads.k), {4e-6, 4e-6}, 1.0));
  EXPECT_TRUE(is_close(grads.v.values(), std::vector<double>(4, 5.0), {1e-6, 1e-6}));
  Problem three({.Lq = 256, .Lk = 3, .Dk = 8, .Dv = 4}, 4);
  const OwnedGradients some = gradients_of(three, 1);
  for (const Tensor* tensor : {&some.q, &some.k, &some.v}) {
    for (const float x : tensor->values()) EXPECT_TRUE(std::isfinite(x));
  }
}

// The gradient of a bias that the batch shares is the sum over the batch (attention-gym 20).
TEST_P(BackwardContract, AnAxisThatABiasRepeatsIsSummed) {
  Problem shared({.B = 3, .Hq = 2, .Hkv = 2, .Lq = 7, .Lk = 9, .Dk = 4, .Dv = 4}, 5);
  shared.add_bias({1, 2, 7, 9});
  const OwnedGradients sum = gradients_of(shared, 0.5F);
  Problem own({.B = 3, .Hq = 2, .Hkv = 2, .Lq = 7, .Lk = 9, .Dk = 4, .Dv = 4}, 5);
  own.bias = Tensor(DType::f32, {3, 2, 7, 9});
  std::vector<double> expected(2 * 7 * 9);
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 7; ++i)
        for (int64_t j = 0; j < 9; ++j) own.bias.set(b, h, i, j, shared.bias.get(0, h, i, j));
  const OwnedGradients each = gradients_of(own, 0.5F);
  const std::vector<float> parts = each.bias.values();
  for (size_t i = 0; i < parts.size(); ++i) expected[i % expected.size()] += parts[i];
  EXPECT_TRUE(is_close(sum.bias.values(), expected, {1e-6, 4e-6}, 0.1));
}

// One key, q . k = 0, sink 0 (flash-attention 1895): half of the weight is the sink's.
TEST_P(BackwardContract, ASinkTakesItsShareAndItsGradient) {
  Problem problem({.Lq = 1, .Lk = 1, .Dk = 2, .Dv = 1}, 6);
  problem.q.fill(0);
  problem.k.fill(1);
  problem.v.fill(3);
  problem.add_sinks();
  problem.sinks.fill(0);
  const OwnedGradients grads = gradients_of(problem, 1);
  EXPECT_NEAR(problem.out.get(0, 0, 0, 0), 1.5, 1e-6);
  EXPECT_NEAR(grads.sinks.get(0, 0, 0, 0), -0.75, 1e-6);
  EXPECT_NEAR(grads.v.get(0, 0, 0, 0), 0.5, 1e-6);
  EXPECT_NEAR(grads.q.get(0, 0, 0, 0), 0.75 / std::sqrt(2.0), 1e-6);
}

// loss = sum of LSE (vllm 30763): dQ = scale P K, dK = scale P^T Q, dV = 0.
TEST_P(BackwardContract, TheGradientOfLseAloneMovesNoValue) {
  Problem problem({.Lq = 20, .Lk = 30, .Dk = 8, .Dv = 4}, 7);
  const OwnedGradients grads = gradients_of(problem, 0, 1);
  const Reference plain = reference(problem.spec, problem.operands());
  std::vector<double> q(20 * 8);
  std::vector<double> k(30 * 8);
  for (int64_t i = 0; i < 20; ++i)
    for (int64_t j = 0; j < 30; ++j)
      for (int64_t d = 0; d < 8; ++d) {
        const double weight = plain.weights[i * 30 + j] / std::sqrt(8.0);
        q[i * 8 + d] += weight * static_cast<double>(problem.k.get(0, 0, j, d));
        k[j * 8 + d] += weight * static_cast<double>(problem.q.get(0, 0, i, d));
      }
  const testing::Bound bound = testing::float32_bound(testing::largest_finite(plain.logits));
  EXPECT_TRUE(is_close(grads.q.values(), q, bound));
  EXPECT_TRUE(is_close(grads.k.values(), k, bound));
  EXPECT_EQ(grads.v.values(), std::vector<float>(30 * 4, 0.0F));
}

// Sizes of 0 (pytorch 184914): no features means the mean of the values.
TEST_P(BackwardContract, NoFeaturesSpreadTheGradientEvenly) {
  Problem problem({.Lq = 6, .Lk = 4, .Dk = 0, .Dv = 3}, 8);
  const OwnedGradients grads = gradients_of(problem, 1);
  EXPECT_TRUE(is_close(grads.v.values(), std::vector<double>(12, 1.5), {1e-6, 1e-6}));
  Problem none({.Lq = 0, .Lk = 4, .Dk = 2, .Dv = 3}, 9);
  const OwnedGradients empty = gradients_of(none, 1);
  EXPECT_EQ(empty.k.values(), std::vector<float>(8, 0.0F));
}

// Gradients of 16-bit inputs are summed in float32 (libtorch rounds at every tile: rms 6.9e-3 here).
TEST_P(BackwardContract, GroupedBfloat16GradientsKeepTheirDigits) {
  Problem problem({.B = 1, .Hq = 8, .Hkv = 1, .Lq = 300, .Lk = 300, .Dk = 64, .Dv = 64}, 10, DType::bf16);
  problem.out = Tensor(DType::bf16, problem.out.size());
  Tensor grad_out(DType::bf16, problem.out.size());
  grad_out.fill_normal(problem.random);
  const Operands call = problem.operands();
  attention(problem.spec, call);
  Tensor k(DType::bf16, problem.k.size());
  Tensor v(DType::bf16, problem.v.size());
  Gradients wanted;
  wanted.k = k.view();
  wanted.v = v.view();
  backward(problem.spec, call, {grad_out.view(), {}}, wanted);
  const ReferenceGradients plain = reference_backward(problem.spec, call, to_doubles(grad_out));
  const auto rms = [](const std::vector<float>& actual, const std::vector<double>& expected) {
    double errors = 0;
    double squares = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      errors += (actual[i] - expected[i]) * (actual[i] - expected[i]);
      squares += expected[i] * expected[i];
    }
    return std::sqrt(errors / squares);
  };
  EXPECT_LE(rms(k.values(), plain.k), 3.3e-3);
  EXPECT_LE(rms(v.values(), plain.v), 3.3e-3);
}

INSTANTIATE_TEST_SUITE_P(Targets, BackwardContract, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::attention
