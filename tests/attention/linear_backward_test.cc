#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "regard/attention/linear.h"
#include "tests/attention/linear_problem.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

// Gradients of the kernels of linear attention against those of the recurrence in float64.
namespace regard::attention {
namespace {

using kernel::DType;
using kernel::Extents;
using testing::Bound;
using testing::doubles_of;
using testing::Gate;
using testing::is_close;
using testing::LinearCase;
using testing::LinearProblem;
using testing::Tensor;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Bound kBound{4e-6, 2e-5};

// What arrives, and room for all gradients.
struct Backward {
  Backward(LinearProblem& problem, const LinearCase& c, uint64_t seed)
      : out(c.dtype, problem.out.size(), c.layout),
        state(DType::f32, problem.state_out.size()),
        norm(DType::f32, problem.norm_out.size()),
        q(c.dtype, problem.q.size(), c.layout),
        k(c.dtype, problem.k.size(), c.layout),
        v(c.dtype, problem.v.size(), c.layout),
        log_decay(DType::f32, problem.log_decay.size()),
        beta(DType::f32, problem.beta.size()),
        first_state(DType::f32, problem.state.size()),
        first_norm(DType::f32, problem.norm.size()) {
    std::mt19937_64 random(seed);
    out.fill_normal(random);
    state.fill_normal(random);
    norm.fill_normal(random);
  }

  static View<float> given(Tensor& tensor) {
    return tensor.size() == Extents{} ? View<float>() : tensor.as<float>();
  }
  LinearArriving arriving() { return {out.view(), state.as<float>(), given(norm)}; }
  LinearGradients gradients() {
    return {q.view(),    k.view(),           v.view(),         given(log_decay),
            given(beta), given(first_state), given(first_norm)};
  }
  void run(LinearProblem& problem, int threads = 1) {
    kernel::ThreadPool pool(threads);
    linear_attention(problem.spec, problem.operands(), pool);
    linear_backward(problem.spec, problem.operands(), arriving(), gradients(), pool);
  }

  Tensor out, state, norm;
  Tensor q, k, v, log_decay, beta, first_state, first_norm;
};

// Sums of what an operand of fewer elements repeats.
std::vector<double> summed(const std::vector<double>& full, const Extents& from, const Extents& to) {
  std::vector<double> sums(static_cast<size_t>(to[0] * to[1] * to[2] * to[3]));
  size_t at = 0;
  for (int64_t b = 0; b < from[0]; ++b)
    for (int64_t h = 0; h < from[1]; ++h)
      for (int64_t p = 0; p < from[2]; ++p)
        for (int64_t f = 0; f < from[3]; ++f)
          sums[static_cast<size_t>(((b % to[0] * to[1] + h % to[1]) * to[2] + p % to[2]) * to[3] +
                                   f % to[3])] += full[at++];
  return sums;
}

void expect_reference(LinearProblem& problem, Backward& grad, Bound bound = kBound) {
  const LinearReferenceGradients expected = linear_reference_backward(
      problem.spec, problem.arrays(), doubles_of(grad.out), doubles_of(grad.state), doubles_of(grad.norm));
  // With one feature and a denominator, out does not depend on q: the gradient is what its parts' rounding
  // left.
  constexpr double kFloor = 0.1;
  EXPECT_TRUE(is_close(grad.q.values(), expected.q, bound, kFloor));
  EXPECT_TRUE(is_close(grad.k.values(), expected.k, bound, kFloor));
  EXPECT_TRUE(is_close(grad.v.values(), expected.v, bound, kFloor));
  if (problem.log_decay.size() != Extents{}) {
    // By feature, each is a difference of sums of q grad_q and k grad_k, and counts as no less than those.
    double floor = 1.0;
    if (problem.log_decay.size()[3] > 1) {
      const LinearArrays arrays = problem.arrays();
      for (size_t at = 0; at < arrays.k.size(); ++at)
        floor = std::max(floor, std::abs(arrays.k[at] * expected.k[at]));
    }
    EXPECT_TRUE(is_close(grad.log_decay.values(),
                         summed(expected.log_decay, problem.k.size(), problem.log_decay.size()), bound,
                         floor));
  }
  if (problem.beta.size() != Extents{}) {
    EXPECT_TRUE(is_close(grad.beta.values(), expected.beta, bound));
  }
  if (problem.state.size() != Extents{}) {
    EXPECT_TRUE(is_close(grad.first_state.values(), expected.state, bound));
  }
  if (problem.norm.size() != Extents{}) {
    EXPECT_TRUE(is_close(grad.first_norm.values(), expected.norm, bound));
  }
}

class LinearBackward : public testing::EachTarget {};

TEST_P(LinearBackward, RandomCallsEqualTheReference) {
  std::mt19937_64 random(15);
  for (int i = 0; i < 150; ++i) {
    const LinearCase c = testing::random_linear_case(random);
    SCOPED_TRACE(c.to_string() + " case " + std::to_string(i));
    LinearProblem problem(c, static_cast<uint64_t>(i));
    Backward grad(problem, c, static_cast<uint64_t>(i) + 1000);
    grad.run(problem);
    expect_reference(problem, grad);
    if (HasFailure()) return;
  }
}

TEST_P(LinearBackward, BitsDoNotDependOnTheNumberOfThreads) {
  std::mt19937_64 random(17);
  for (int i = 0; i < 24; ++i) {
    LinearCase c = testing::random_linear_case(random);
    c.sizes.Lk = c.sizes.Lq = 90;
    c.spec.chunk = 16;
    SCOPED_TRACE(c.to_string());
    LinearProblem problem(c, static_cast<uint64_t>(i));
    Backward one(problem, c, static_cast<uint64_t>(i));
    one.run(problem);
    for (const int threads : {2, 3, 5}) {
      Backward other(problem, c, static_cast<uint64_t>(i));
      other.run(problem, threads);
      EXPECT_EQ(one.q.values(), other.q.values()) << threads;
      EXPECT_EQ(one.k.values(), other.k.values()) << threads;
      EXPECT_EQ(one.v.values(), other.v.values()) << threads;
      EXPECT_EQ(one.log_decay.values(), other.log_decay.values()) << threads;
      EXPECT_EQ(one.beta.values(), other.beta.values()) << threads;
      EXPECT_EQ(one.first_state.values(), other.first_state.values()) << threads;
    }
    if (HasFailure()) return;
  }
}

TEST_P(LinearBackward, GradientsInSixteenBitsAreRoundedOnce) {
  LinearCase c;
  c.sizes = {1, 2, 1, 90, 90, 24, 33};
  c.gate = Gate::token;
  c.dtype = DType::bf16;
  LinearProblem problem(c, 3);
  Backward grad(problem, c, 4);
  grad.run(problem);
  expect_reference(problem, grad, {std::ldexp(1.0, -8), std::ldexp(1.0, -7)});
}

// Only what is asked for is written, and nothing that arrives is nothing.
TEST_P(LinearBackward, WhatIsAskedForAloneIsComputed) {
  LinearCase c;
  c.sizes = {1, 1, 1, 70, 70, 8, 8};
  c.gate = Gate::feature;
  LinearProblem problem(c, 3);
  Backward all(problem, c, 4);
  all.run(problem);
  Backward some(problem, c, 4);
  some.q.fill(3);
  LinearGradients wanted;
  wanted.v = some.v.view();
  linear_backward(problem.spec, problem.operands(), some.arriving(), wanted);
  EXPECT_EQ(some.v.values(), all.v.values());
  EXPECT_EQ(some.q.get(0, 0, 0, 0), 3.0F);
  linear_backward(problem.spec, problem.operands(), {}, some.gradients());
  EXPECT_EQ(some.q.values(), std::vector<float>(70 * 8, 0.0F));
  EXPECT_EQ(some.k.values(), std::vector<float>(70 * 8, 0.0F));
}

// Row i and key j > i are strangers: a NaN of one stays out of the other's gradients.
TEST_P(LinearBackward, LetsNothingThroughFromLaterPositions) {
  for (const Gate gate : {Gate::none, Gate::token, Gate::feature})
    for (const bool delta : {false, true})
      for (const int64_t at : {1, 17, 40, 63, 64}) {
        LinearCase c;
        c.sizes = {1, 2, 1, 70, 70, 19, 21};
        c.gate = gate;
        c.delta = delta;
        SCOPED_TRACE(c.to_string() + " at " + std::to_string(at));
        // A row's query and gradient reach earlier keys and no later one.
        LinearProblem problem(c, 4);
        Backward clean(problem, c, 5);
        clean.run(problem);
        Backward grad(problem, c, 5);
        for (int64_t h = 0; h < 2; ++h) {
          grad.out.set(0, h, at, 2, kNan);
          problem.q.set(0, h, at, 3, kNan);
        }
        grad.run(problem);
        for (int64_t i = at + 1; i < 70; ++i)
          for (int64_t f = 0; f < 19; ++f) {
            ASSERT_NEAR(grad.k.get(0, 0, i, f), clean.k.get(0, 0, i, f), 1e-3) << i;
            ASSERT_NEAR(grad.v.get(0, 0, i, f), clean.v.get(0, 0, i, f), 1e-3) << i;
          }
        ASSERT_TRUE(std::isnan(grad.k.get(0, 0, at, 0)));
        // A key reaches later rows and no earlier one.
        LinearProblem keyed(c, 4);
        keyed.k.set(0, 0, at, 3, kNan);
        keyed.v.set(0, 0, at, 3, kNan);
        Backward of_key(keyed, c, 5);
        of_key.run(keyed);
        for (int64_t i = 0; i < at; ++i)
          for (int64_t h = 0; h < 2; ++h)
            for (int64_t f = 0; f < 19; ++f)
              ASSERT_NEAR(of_key.q.get(0, h, i, f), clean.q.get(0, h, i, f), 1e-3) << i;
      }
}

TEST_P(LinearBackward, PaddingHasNoInfluenceAndNoGradient) {
  for (const bool causal : {false, true}) {
    LinearCase c;
    c.sizes = {2, 2, 1, 75, 75, 17, 9};
    c.spec.causal = causal;
    c.spec.feature = FeatureMap::elu1;
    c.spec.denominator = Denominator::add;
    LinearProblem problem(c, 9);
    problem.lengths = {30, 70};
    Backward clean(problem, c, 1);
    clean.run(problem);
    expect_reference(problem, clean);
    LinearProblem poisoned = problem;
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = problem.lengths[static_cast<size_t>(b)]; i < 75; ++i) {
        poisoned.k.set(b, 0, i, 3, kNan);
        poisoned.v.set(b, 0, i, 3, kNan);
      }
    Backward grad(poisoned, c, 1);
    grad.run(poisoned);
    EXPECT_EQ(grad.q.values(), clean.q.values());
    EXPECT_EQ(grad.k.values(), clean.k.values());
    EXPECT_EQ(grad.v.values(), clean.v.values());
    EXPECT_EQ(grad.k.get(0, 0, 30, 0), 0.0F);
  }
}

// One state a chunk, none a step: scratch grows with the length as keys and values do.
TEST_P(LinearBackward, KeepsAStateAChunkNotAStep) {
  const auto bytes = [](int64_t length) {
    LinearCase c;
    c.sizes = {1, 1, 1, length, length, 32, 32};
    LinearProblem problem(c, 1);
    return linear_backward_bytes(problem.spec, problem.operands(), 1);
  };
  const size_t state = 4 * 32 * (32 + 32);  // with what rows are padded by
  EXPECT_LE(bytes(64 * 41) - bytes(64), 40 * state);
  EXPECT_GT(bytes(64 * 41), bytes(64));
}

INSTANTIATE_TEST_SUITE_P(Targets, LinearBackward, ::testing::ValuesIn(kernel::runnable_targets()));

}  // namespace
}  // namespace regard::attention
