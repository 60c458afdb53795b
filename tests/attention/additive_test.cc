#include "regard/attention/additive.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "regard/attention/attention.h"
#include "tests/attention/owned_gradients.h"
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
using testing::to_doubles;

// A problem with its vector; q and k have the sizes of Dk.
struct AdditiveProblem : Problem {
  AdditiveProblem(const Sizes& sizes, uint64_t seed, DType dtype = DType::f32,
                  Layout layout = Layout::contiguous, float amplitude = 1.0F)
      : Problem(sizes, seed, dtype, layout, amplitude), vector(DType::f32, {1, sizes.Hq, 1, sizes.Dk}) {
    vector.fill_normal(random, 1.0F / std::sqrt(static_cast<float>(std::max<int64_t>(sizes.Dk, 1))));
  }
  View<const float> a() { return vector.as<const float>(); }
  // Sum of |vector_f|, the largest score that there can be.
  double reach() const {
    double most = 0;
    for (int64_t h = 0; h < sizes.Hq; ++h) {
      double sum = 0;
      for (int64_t f = 0; f < sizes.Dk; ++f) sum += std::abs(static_cast<double>(vector.get(0, h, 0, f)));
      most = std::max(most, sum);
    }
    return most;
  }
  void run(kernel::Parallel& parallel = kernel::default_parallel()) {
    additive_attention(spec, operands(), a(), parallel);
  }

  Tensor vector;
};

struct Gradient {
  Tensor q, k, v, vector;
  explicit Gradient(AdditiveProblem& p)
      : q(DType::f32, p.q.size()),
        k(DType::f32, p.k.size()),
        v(DType::f32, p.v.size()),
        vector(DType::f32, p.vector.size()) {}
  AdditiveGradients views() { return {q.as<float>(), k.as<float>(), v.as<float>(), vector.as<float>()}; }
};

std::vector<double> over_batch(const std::vector<double>& full, int64_t batch) {
  std::vector<double> sum(full.size() / static_cast<size_t>(batch));
  for (size_t i = 0; i < full.size(); ++i) sum[i % sum.size()] += full[i];
  return sum;
}

class Additive : public testing::EachTarget {};

const std::vector<Sizes> kSizes = {
    {.Lq = 1, .Lk = 1, .Dk = 1, .Dv = 1},
    {.B = 2, .Hq = 4, .Hkv = 2, .Lq = 13, .Lk = 17, .Dk = 5, .Dv = 7},
    {.B = 1, .Hq = 2, .Hkv = 1, .Lq = 6, .Lk = 16, .Dk = 8, .Dv = 16},
    {.B = 1, .Hq = 1, .Hkv = 1, .Lq = 31, .Lk = 97, .Dk = 33, .Dv = 3},
    {.B = 1, .Hq = 2, .Hkv = 2, .Lq = 12, .Lk = 401, .Dk = 24, .Dv = 20},
    {.Lq = 3, .Lk = 5, .Dk = 0, .Dv = 2},
    {.Lq = 2, .Lk = 0, .Dk = 3, .Dv = 2},
    {.Lq = 0, .Lk = 4, .Dk = 3, .Dv = 2},
};

void expect_forward(AdditiveProblem& problem) {
  problem.run();
  const Reference plain = additive_reference(problem.spec, problem.operands(), problem.a());
  const testing::Bound bound = testing::float32_bound(problem.reach());
  EXPECT_TRUE(is_close(problem.out.values(), plain.out, bound)) << problem.sizes.to_string();
  EXPECT_TRUE(is_close(problem.lse.values(), plain.lse, bound)) << problem.sizes.to_string();
}

TEST_P(Additive, EqualsItsDefinition) {
  for (const Sizes& sizes : kSizes) {
    for (const Layout layout : {Layout::contiguous, Layout::spaced}) {
      AdditiveProblem problem(sizes, 1, DType::f32, layout);
      expect_forward(problem);
    }
  }
}

TEST_P(Additive, EqualsItsDefinitionUnderMasks) {
  for (const Sizes& sizes : kSizes) {
    AdditiveProblem causal(sizes, 2);
    causal.spec.mask = Mask::causal(Align::bottom_right) & Mask::window(20, -1, Align::bottom_right);
    expect_forward(causal);
    AdditiveProblem dense(sizes, 3);
    dense.add_dense_mask({sizes.B, 1, sizes.Lq, sizes.Lk}, 0.6);
    dense.add_key_lengths();
    expect_forward(dense);
  }
}

TEST_P(Additive, TakesSixteenBitInputs) {
  AdditiveProblem problem({.B = 1, .Hq = 2, .Hkv = 1, .Lq = 9, .Lk = 21, .Dk = 12, .Dv = 10}, 4, DType::bf16);
  expect_forward(problem);
}

// Between 10 and 40 features do not share a division. A NaN beside such numbers touches its own rows alone.
TEST_P(Additive, MiddlingNumbersEqualTheDefinition) {
  for (const float amplitude : {4.0F, 9.0F}) {
    AdditiveProblem problem({.B = 1, .Hq = 2, .Hkv = 1, .Lq = 19, .Lk = 37, .Dk = 9, .Dv = 4}, 17, DType::f32,
                            Layout::contiguous, amplitude);
    for (int64_t i = 0; i < 19; ++i) problem.q.set(0, 1, i, 0, 35.0F);
    expect_forward(problem);
    problem.spec.mask = Mask::causal(Align::bottom_right);
    problem.k.set(0, 0, 36, 0, std::numeric_limits<float>::quiet_NaN());
    expect_forward(problem);
  }
}

// Beyond |x| = 40 exponentials are not factored; the two ways are one function.
TEST_P(Additive, LargeNumbersSaturateAndSmallDifferencesOfThemDoNot) {
  AdditiveProblem problem({.B = 1, .Hq = 2, .Hkv = 1, .Lq = 19, .Lk = 37, .Dk = 9, .Dv = 4}, 5, DType::f32,
                          Layout::contiguous, 30.0F);
  expect_forward(problem);
  for (int64_t i = 0; i < 19; ++i) problem.q.set(0, 0, i, 3, 60.0F + 0.01F * static_cast<float>(i));
  for (int64_t j = 0; j < 37; ++j) problem.k.set(0, 0, j, 3, -60.0F + 0.02F * static_cast<float>(j));
  problem.q.set(0, 1, 5, 2, 3e38F);
  problem.k.set(0, 0, 7, 2, -std::numeric_limits<float>::infinity());
  expect_forward(problem);
}

// The lines of the contract that masks and rows have to keep.
TEST_P(Additive, AMaskedPairLetsNothingThrough) {
  AdditiveProblem problem({.B = 1, .Hq = 1, .Hkv = 1, .Lq = 8, .Lk = 8, .Dk = 4, .Dv = 3}, 6);
  problem.spec.mask = Mask::causal(Align::top_left);
  problem.run();
  const std::vector<float> clean = problem.out.values();
  problem.k.set(0, 0, 5, 1, std::numeric_limits<float>::quiet_NaN());
  problem.v.set(0, 0, 6, 0, std::numeric_limits<float>::infinity());
  problem.run();
  const std::vector<float> poisoned = problem.out.values();
  for (size_t at = 0; at < 5 * 3; ++at) EXPECT_EQ(poisoned[at], clean[at]);
  EXPECT_TRUE(std::isnan(poisoned[5 * 3]));

  Tensor grad_out(DType::f32, problem.out.size());
  grad_out.fill(1.0F);
  grad_out.set(0, 0, 7, 1, std::numeric_limits<float>::quiet_NaN());
  Gradient gradient(problem);
  additive_backward(problem.spec, problem.operands(), problem.a(), {grad_out.view(), {}}, gradient.views());
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t f = 0; f < 4; ++f) EXPECT_TRUE(std::isfinite(gradient.q.get(0, 0, i, f))) << i;
}

TEST_P(Additive, ARowThatSeesNothingIsZeroAndHasNoGradient) {
  AdditiveProblem problem({.B = 1, .Hq = 1, .Hkv = 1, .Lq = 6, .Lk = 3, .Dk = 4, .Dv = 3}, 7);
  problem.spec.mask = Mask::causal(Align::bottom_right);  // rows 0 to 2 see nothing
  problem.run();
  EXPECT_EQ(problem.lse.get(0, 0, 2, 0), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(problem.out.get(0, 0, 2, 1), 0.0F);
  Tensor grad_out(DType::f32, problem.out.size());
  grad_out.fill(1.0F);
  Gradient gradient(problem);
  additive_backward(problem.spec, problem.operands(), problem.a(), {grad_out.view(), {}}, gradient.views());
  EXPECT_EQ(gradient.q.get(0, 0, 2, 1), 0.0F);
  EXPECT_NE(gradient.q.get(0, 0, 5, 1), 0.0F);
}

TEST_P(Additive, GradientsEqualTheReference) {
  for (const Sizes& sizes : kSizes) {
    for (const bool masked : {false, true}) {
      AdditiveProblem problem(sizes, 8, DType::f32, masked ? Layout::position_major : Layout::contiguous);
      if (masked) {
        problem.spec.mask = Mask::causal(Align::bottom_right);
        problem.add_dense_mask({1, sizes.Hq, sizes.Lq, sizes.Lk}, 0.7);
      }
      problem.run();
      Tensor grad_out(DType::f32, problem.out.size());
      Tensor grad_lse(DType::f32, problem.lse.size());
      grad_out.fill_normal(problem.random);
      grad_lse.fill_normal(problem.random);
      Gradient gradient(problem);
      additive_backward(problem.spec, problem.operands(), problem.a(),
                        {grad_out.view(), grad_lse.as<const float>()}, gradient.views());
      const AdditiveReferenceGradients plain = additive_reference_backward(
          problem.spec, problem.operands(), problem.a(), to_doubles(grad_out), to_doubles(grad_lse));
      const testing::Bound bound = testing::float32_bound(problem.reach() + 4);
      EXPECT_TRUE(is_close(gradient.q.values(), plain.q, bound, 0.1)) << sizes.to_string();
      EXPECT_TRUE(is_close(gradient.k.values(), plain.k, bound, 0.1)) << sizes.to_string();
      EXPECT_TRUE(is_close(gradient.v.values(), plain.v, bound, 0.1)) << sizes.to_string();
      EXPECT_TRUE(is_close(gradient.vector.values(), over_batch(plain.vector, sizes.B), bound, 0.1))
          << sizes.to_string();
    }
  }
}

TEST_P(Additive, GradientsOfLargeNumbersEqualTheReference) {
  AdditiveProblem problem({.B = 1, .Hq = 2, .Hkv = 1, .Lq = 15, .Lk = 20, .Dk = 6, .Dv = 4}, 9, DType::f32,
                          Layout::contiguous, 25.0F);
  problem.run();
  Tensor grad_out(DType::f32, problem.out.size());
  grad_out.fill_normal(problem.random);
  Gradient gradient(problem);
  additive_backward(problem.spec, problem.operands(), problem.a(), {grad_out.view(), {}}, gradient.views());
  const AdditiveReferenceGradients plain =
      additive_reference_backward(problem.spec, problem.operands(), problem.a(), to_doubles(grad_out));
  const testing::Bound bound = testing::float32_bound(problem.reach() + 4);
  EXPECT_TRUE(is_close(gradient.q.values(), plain.q, bound, 0.1));
  EXPECT_TRUE(is_close(gradient.k.values(), plain.k, bound, 0.1));
  EXPECT_TRUE(is_close(gradient.vector.values(), plain.vector, bound, 0.1));
}

TEST_P(Additive, BitsDoNotDependOnTheNumberOfThreads) {
  for (const Sizes& sizes : {Sizes{.B = 1, .Hq = 2, .Hkv = 1, .Lq = 50, .Lk = 500, .Dk = 20, .Dv = 9},
                             Sizes{.B = 3, .Hq = 4, .Hkv = 4, .Lq = 20, .Lk = 30, .Dk = 7, .Dv = 9}}) {
    std::vector<std::vector<float>> first;
    for (const int threads : {1, 2, 3, 5}) {
      AdditiveProblem problem(sizes, 10);
      kernel::ThreadPool pool(threads);
      problem.run(pool);
      Tensor grad_out(DType::f32, problem.out.size());
      grad_out.fill_normal(problem.random);
      Gradient gradient(problem);
      additive_backward(problem.spec, problem.operands(), problem.a(), {grad_out.view(), {}},
                        gradient.views(), pool);
      const std::vector<std::vector<float>> results = {problem.out.values(), problem.lse.values(),
                                                       gradient.q.values(),  gradient.k.values(),
                                                       gradient.v.values(),  gradient.vector.values()};
      if (first.empty()) first = results;
      EXPECT_EQ(results, first) << threads;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Additive, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

// Luong's concat form (arXiv 1508.04025, section 3.1): v^T tanh(W [q; k]) with W = [W1 W2] is additive with
// W1 q and W2 k: the same sums in the same order.
TEST(AdditiveForm, ConcatWithTanhIsAdditiveWithStackedWeights) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> draw;
  constexpr int64_t kD = 3;
  constexpr int64_t kHidden = 4;
  std::vector<double> w(kHidden * 2 * kD);
  for (double& x : w) x = draw(random);
  AdditiveProblem raw({.Lq = 5, .Lk = 6, .Dk = kD, .Dv = 2}, 12);
  AdditiveProblem projected({.Lq = 5, .Lk = 6, .Dk = kHidden, .Dv = 2}, 13);
  for (int64_t j = 0; j < 6; ++j) projected.v.set(0, 0, j, 0, raw.v.get(0, 0, j, 0));
  const auto project = [&](const Tensor& from, int64_t i, int64_t n, int64_t first) {
    double sum = 0;
    for (int64_t d = 0; d < kD; ++d) sum += w[n * 2 * kD + first + d] * from.get(0, 0, i, d);
    return sum;
  };
  for (int64_t n = 0; n < kHidden; ++n) {
    for (int64_t i = 0; i < 5; ++i) projected.q.set(0, 0, i, n, static_cast<float>(project(raw.q, i, n, 0)));
    for (int64_t j = 0; j < 6; ++j) projected.k.set(0, 0, j, n, static_cast<float>(project(raw.k, j, n, kD)));
  }
  const Reference additive = additive_reference({}, projected.operands(), projected.a());
  for (int64_t i = 0; i < 5; ++i) {
    std::vector<double> scores(6, 0.0);
    double sum = 0;
    for (int64_t j = 0; j < 6; ++j) {
      for (int64_t n = 0; n < kHidden; ++n) {
        scores[j] +=
            projected.vector.get(0, 0, 0, n) * std::tanh(project(raw.q, i, n, 0) + project(raw.k, j, n, kD));
      }
      sum += std::exp(scores[j]);
    }
    for (int64_t j = 0; j < 6; ++j) EXPECT_NEAR(additive.weights[i * 6 + j], std::exp(scores[j]) / sum, 1e-6);
  }
}

// The reference's gradients against central differences of the reference.
TEST(AdditiveReference, GradientsEqualFiniteDifferences) {
  AdditiveProblem problem({.B = 2, .Hq = 2, .Hkv = 1, .Lq = 4, .Lk = 5, .Dk = 3, .Dv = 2}, 14);
  problem.spec.mask = Mask::causal(Align::bottom_right);
  std::normal_distribution<double> draw;
  std::vector<double> grad_out(2 * 2 * 4 * 2);
  std::vector<double> grad_lse(2 * 2 * 4);
  for (double& x : grad_out) x = draw(problem.random);
  for (double& x : grad_lse) x = draw(problem.random);
  const auto loss = [&] {
    const Reference forward = additive_reference(problem.spec, problem.operands(), problem.a());
    double sum = 0;
    for (size_t i = 0; i < grad_out.size(); ++i) sum += grad_out[i] * forward.out[i];
    for (size_t i = 0; i < grad_lse.size(); ++i) sum += grad_lse[i] * forward.lse[i];
    return sum;
  };
  const auto differences = [&](Tensor& input) {
    std::vector<double> slopes;
    const kernel::Extents size = input.size();
    for (int64_t b = 0; b < size[0]; ++b)
      for (int64_t h = 0; h < size[1]; ++h)
        for (int64_t p = 0; p < size[2]; ++p)
          for (int64_t f = 0; f < size[3]; ++f) {
            const float middle = input.get(b, h, p, f);
            input.set(b, h, p, f, middle + 1e-3F);
            const double high = loss();
            input.set(b, h, p, f, middle - 1e-3F);
            const double low = loss();
            input.set(b, h, p, f, middle);
            slopes.push_back((high - low) /
                             (static_cast<double>(middle + 1e-3F) - static_cast<double>(middle - 1e-3F)));
          }
    return slopes;
  };
  const AdditiveReferenceGradients grad =
      additive_reference_backward(problem.spec, problem.operands(), problem.a(), grad_out, grad_lse);
  const testing::Bound bound{1e-6, 2e-6};  // the step's square
  EXPECT_TRUE(is_close(differences(problem.q), grad.q, bound, 1));
  EXPECT_TRUE(is_close(differences(problem.k), grad.k, bound, 1));
  EXPECT_TRUE(is_close(differences(problem.v), grad.v, bound, 1));
  EXPECT_TRUE(is_close(differences(problem.vector), over_batch(grad.vector, 2), bound, 1));
}

TEST(AdditiveCheck, NamesWhatIsNotAllowed) {
  AdditiveProblem problem({.Lq = 3, .Lk = 4, .Dk = 5, .Dv = 2}, 15);
  problem.spec.softcap = 3;
  EXPECT_THROW(problem.run(), std::invalid_argument);
  problem.spec = {};
  problem.add_bias({1, 1, 1, 4});
  EXPECT_THROW(problem.run(), std::invalid_argument);
  AdditiveProblem other({.Lq = 3, .Lk = 4, .Dk = 5, .Dv = 2}, 16);
  other.vector = Tensor(DType::f32, {1, 1, 1, 4});
  EXPECT_THROW(other.run(), std::invalid_argument);
}

}  // namespace
}  // namespace regard::attention
