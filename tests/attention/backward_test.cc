#include "regard/attention/backward.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "regard/attention/attention.h"
#include "regard/attention/reference.h"
#include "regard/kernel/rows.h"
#include "tests/attention/golden_case.h"
#include "tests/attention/owned_gradients.h"
#include "tests/attention/random_call.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

namespace regard::attention {
namespace {

using kernel::DType;
using kernel::Extents;
using testing::Bound;
using testing::float32_bound;
using testing::is_close;
using testing::OwnedGradients;
using testing::Problem;
using testing::Tensor;
using testing::to_doubles;

// The reference's full [B, H, Lq, Lk] summed over the axes that an operand of these sizes repeats.
std::vector<double> sum_to(const std::vector<double>& full, const Extents& from, const Extents& to) {
  std::vector<double> sums(to[0] * to[1] * to[2] * to[3]);
  size_t at = 0;
  for (int64_t b = 0; b < from[0]; ++b) {
    for (int64_t h = 0; h < from[1]; ++h) {
      for (int64_t i = 0; i < from[2]; ++i) {
        for (int64_t j = 0; j < from[3]; ++j) {
          const int64_t index =
              (((to[0] == 1 ? 0 : b) * to[1] + (to[1] == 1 ? 0 : h)) * to[2] + (to[2] == 1 ? 0 : i)) * to[3] +
              (to[3] == 1 ? 0 : j);
          sums[index] += full[at++];
        }
      }
    }
  }
  return sums;
}

// Of each element of a gradient, the root of the sum of the squares of the numbers whose sum it is: what
// their roundings add up to, whether the sum itself comes near 0 or not.
struct Magnitudes {
  std::vector<double> q, k, v, bias, slopes, sinks;

  Magnitudes(const Spec& spec, const Operands& call, const Reference& forward,
             const std::vector<double>& grad_out, const std::vector<double>& grad_lse) {
    const auto [B, H, Lq, Dk] = call.q.size;
    const auto [B2, Hkv, Lk, Dv] = call.v.size;
    const double scale = spec.scale.value_or(Dk == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(Dk)));
    const double kept = 1.0 / (1.0 - spec.dropout);
    q.resize(B * H * Lq * Dk);
    k.resize(B * Hkv * Lk * Dk);
    v.resize(B * Hkv * Lk * Dv);
    bias.resize(B * H * Lq * Lk);
    if (call.slopes) slopes.resize(B * H);
    if (call.sinks) sinks.resize(B * H);
    const auto square = [](double x) { return x * x; };
    const auto values = [&](const kernel::ConstAnyView& view, int64_t b, int64_t h, int64_t i) {
      std::vector<double> row(view.size[3]);
      for (size_t f = 0; f < row.size(); ++f)
        row[f] = static_cast<double>(kernel::element(view, b, h, i, static_cast<int64_t>(f)));
      return row;
    };
    for (int64_t head = 0; head < B * H; ++head) {
      const int64_t b = head / H;
      const int64_t kv = head % H / (H / Hkv);
      std::vector<std::vector<double>> keys, rows;
      for (int64_t j = 0; j < Lk; ++j) {
        keys.push_back(values(call.k, b, kv, j));
        rows.push_back(values(call.v, b, kv, j));
      }
      for (int64_t i = 0; i < Lq; ++i) {
        const int64_t row = head * Lq + i;
        const std::vector<double> query = values(call.q, b, head % H, i);
        const double* from = grad_out.data() + row * Dv;
        double whole = grad_lse.empty() ? 0 : square(grad_lse[row]);  // of grad_out . out - grad_lse
        for (int64_t d = 0; d < Dv; ++d) whole += square(from[d] * forward.out[row * Dv + d]);
        const double offset = spec.alibi_align == Align::bottom_right ? static_cast<double>(Lk - Lq) : 0.0;
        for (int64_t j = 0; j < Lk; ++j) {
          const double p = forward.weights[row * Lk + j];
          if (p == 0) continue;
          double product = 0;
          for (int64_t d = 0; d < Dv; ++d) product += square(kept * from[d] * rows[j][d]);
          const double pair = p * p * (product + whole);
          bias[row * Lk + j] = pair;
          for (int64_t d = 0; d < Dk; ++d) {
            q[row * Dk + d] += pair * square(scale * keys[j][d]);
            k[((b * Hkv + kv) * Lk + j) * Dk + d] += pair * square(scale * query[d]);
          }
          for (int64_t d = 0; d < Dv; ++d)
            v[((b * Hkv + kv) * Lk + j) * Dv + d] += square(kept * p * from[d]);
          if (call.slopes) slopes[head] += pair * square(static_cast<double>(i - j) + offset);
        }
        if (call.sinks) {
          const double sink = kernel::element(kernel::ConstAnyView(call.sinks),
                                              call.sinks.size[0] == 1 ? 0 : b, head % H, 0, 0);
          if (std::isfinite(forward.lse[row]))
            sinks[head] += whole * square(std::exp(sink - forward.lse[row]));
        }
      }
    }
  }
};

// Errors against what is said or, where that is more, against the magnitudes (squares) that it was summed
// from.
::testing::AssertionResult is_within(const std::vector<float>& actual, const std::vector<double>& expected,
                                     const std::vector<double>& squares, Bound bound) {
  double errors = 0, worst = 0, sum = 0, terms = 0, top = 1e-3 * 1e-3;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = static_cast<double>(actual[i]) - expected[i];
    if (!std::isfinite(error)) return ::testing::AssertionFailure() << "value " << i << " is " << actual[i];
    errors += error * error;
    worst = std::max(worst, std::abs(error));
    sum += expected[i] * expected[i];
    terms += squares[i];
    top = std::max({top, expected[i] * expected[i], squares[i]});
  }
  const double mean = std::max({sum, terms, 1e-6 * static_cast<double>(expected.size())});
  if (errors <= bound.rms * bound.rms * mean && worst <= bound.max * std::sqrt(top))
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "rms " << std::sqrt(errors / mean) << " (allowed " << bound.rms << "), largest "
         << worst / std::sqrt(top) << " (allowed " << bound.max << ")";
}

// attention() and backward() of a problem, and what the reference says.
struct BothWays {
  Operands call;
  OwnedGradients grads;
  ReferenceGradients plain;
  Magnitudes terms;
  Bound bound;

  BothWays(Problem& problem, Tensor& grad_out, Tensor* grad_lse, DType type,
           kernel::Parallel& parallel = kernel::default_parallel())
      : BothWays(problem, grad_out, grad_lse, type, reference(problem.spec, problem.operands()), parallel) {}

  // No gradient of one operand is exact where its terms cancel; each is as exact as they are.
  ::testing::AssertionResult is_right() {
    const Extents square{call.q.size[0], call.q.size[1], call.q.size[2], call.k.size[2]};
    const Extents heads{call.q.size[0], call.q.size[1], 1, 1};
    // The elements of a row share the rounding of its LSE: of few rows, as of few elements, the mean says as
    // little as one error.
    const auto rows = static_cast<size_t>(square[0] * square[1] * square[2]);
    const auto check = [&](const char* name, const Tensor& actual, const std::vector<double>& expected,
                           const std::vector<double>& squares) {
      const auto count = static_cast<double>(std::max<size_t>(std::min(rows, expected.size()), 1));
      const Bound allowed{bound.rms * std::min(4.0, 1.0 + 3.0 / std::sqrt(count)), bound.max};
      ::testing::AssertionResult result = is_within(actual.values(), expected, squares, allowed);
      if (!result) result << " in the gradient of " << name;
      return result;
    };
    ::testing::AssertionResult result = check("q", grads.q, plain.q, terms.q);
    if (result) result = check("k", grads.k, plain.k, terms.k);
    if (result) result = check("v", grads.v, plain.v, terms.v);
    const auto check_sum = [&](const char* name, const Tensor& actual, const std::vector<double>& expected,
                               const std::vector<double>& squares, const Extents& from) {
      const Extents& size = actual.size();
      if (result && size != Extents{})
        result = check(name, actual, sum_to(expected, from, size), sum_to(squares, from, size));
    };
    check_sum("bias", grads.bias, plain.bias, terms.bias, square);
    check_sum("slopes", grads.slopes, plain.slopes, terms.slopes, heads);
    check_sum("sinks", grads.sinks, plain.sinks, terms.sinks, heads);
    return result;
  }

 private:
  BothWays(Problem& problem, Tensor& grad_out, Tensor* grad_lse, DType type, const Reference& forward,
           kernel::Parallel& parallel)
      : call(problem.operands()),
        grads(call, type),
        plain(reference_backward(problem.spec, call, to_doubles(grad_out),
                                 grad_lse == nullptr ? std::vector<double>() : to_doubles(*grad_lse))),
        terms(problem.spec, call, forward, to_doubles(grad_out),
              grad_lse == nullptr ? std::vector<double>() : to_doubles(*grad_lse)),
        bound(float32_bound(testing::largest_finite(forward.logits))) {
    attention(problem.spec, call, parallel);
    backward(problem.spec, call,
             {grad_out.view(), grad_lse == nullptr ? View<const float>() : grad_lse->as<const float>()},
             grads.views(), parallel);
  }
};

class Backward : public testing::EachTarget {};

TEST_P(Backward, RandomCallsStayWithinTheErrorBoundOfTheReference) {
  for (const uint64_t seed : testing::property_seeds(1000)) {
    Problem problem = testing::random_call(seed);
    SCOPED_TRACE(testing::describe(seed, problem));
    Tensor grad_out(DType::f32, problem.out.size(), static_cast<testing::Layout>(seed % 4));
    Tensor grad_lse(DType::f32, problem.lse.size());
    grad_out.fill_normal(problem.random);
    grad_lse.fill_normal(problem.random);
    BothWays run(problem, grad_out, seed % 3 == 0 ? &grad_lse : nullptr, DType::f32);
    ASSERT_TRUE(run.is_right());
  }
}

// Several blocks of rows and keys, several chunks of keys, and what cuts them.
TEST_P(Backward, OfManyBlocksStaysWithinTheErrorBound) {
  const std::vector<Mask> masks = {{},
                                   Mask::causal(Align::bottom_right),
                                   Mask::causal(Align::top_left),
                                   Mask::window(20, 3, Align::bottom_right),
                                   Mask::window(150, -1, Align::top_left)};
  uint64_t seed = 0;
  for (const Mask& mask : masks) {
    const int64_t Dk = std::array{16, 40, 130}[seed % 3];
    Problem problem({.B = 1, .Hq = 2, .Hkv = 1, .Lq = 211, .Lk = 403, .Dk = Dk, .Dv = 64}, ++seed);
    problem.spec.mask = mask;
    if (Dk == 40) problem.spec.dropout = 0.2;
    if (Dk == 16) problem.add_dense_mask({1, 2, 211, 403}, 0.02);
    SCOPED_TRACE(problem.sizes.to_string() + ", " + problem.spec.to_string());
    Tensor grad_out(DType::f32, problem.out.size());
    grad_out.fill_normal(problem.random);
    BothWays run(problem, grad_out, nullptr, DType::f32);
    EXPECT_TRUE(run.is_right());
  }
}

TEST_P(Backward, InSixteenBitsIsRoundedOnce) {
  for (const DType type : {DType::bf16, DType::f16}) {
    Problem problem({.B = 1, .Hq = 4, .Hkv = 1, .Lq = 150, .Lk = 150, .Dk = 64, .Dv = 64}, 9, type);
    problem.out = Tensor(type, problem.out.size());
    Tensor grad_out(type, problem.out.size());
    grad_out.fill_normal(problem.random);
    BothWays run(problem, grad_out, nullptr, type);
    const auto check = [&](const Tensor& actual, const std::vector<double>& expected) {
      double errors = 0;
      double roundings = 0;
      const std::vector<float> values = actual.values();
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto once = static_cast<float>(expected[i]);
        const float rounded = type == DType::bf16 ? kernel::to_float(kernel::to_bf16(once))
                                                  : kernel::to_float(kernel::to_f16(once));
        errors += (values[i] - expected[i]) * (values[i] - expected[i]);
        roundings += (rounded - expected[i]) * (rounded - expected[i]);
      }
      EXPECT_LE(errors, 4 * roundings) << kernel::name(type);
      EXPECT_GT(roundings, 0);
    };
    check(run.grads.q, run.plain.q);
    check(run.grads.k, run.plain.k);
    check(run.grads.v, run.plain.v);
  }
}

TEST_P(Backward, HasTheSameBitsForAnyNumberOfThreads) {
  Problem problem({.B = 1, .Hq = 3, .Hkv = 1, .Lq = 230, .Lk = 700, .Dk = 24, .Dv = 40}, 4);
  problem.spec.mask = Mask::causal(Align::bottom_right);
  problem.spec.dropout = 0.1;
  problem.add_bias({1, 1, 230, 700});
  problem.add_slopes();
  problem.add_sinks();
  Tensor grad_out(DType::f32, problem.out.size());
  grad_out.fill_normal(problem.random);
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3, 5, 2}) {
    kernel::ThreadPool pool(threads);
    const Operands call = problem.operands();
    attention(problem.spec, call, pool);
    OwnedGradients grads(call);
    backward(problem.spec, call, {grad_out.view(), {}}, grads.views(), pool);
    const std::vector<std::vector<float>> all = {grads.q.values(),      grads.k.values(),
                                                 grads.v.values(),      grads.bias.values(),
                                                 grads.slopes.values(), grads.sinks.values()};
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << threads << " threads";
  }
}

TEST_P(Backward, LetsNothingThroughAMaskedPair) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const bool poisoned : {false, true}) {
    Problem problem({.B = 1, .Hq = 1, .Hkv = 1, .Lq = 120, .Lk = 120, .Dk = 8, .Dv = 8}, 6);
    problem.spec.mask = Mask::causal(Align::top_left);
    Tensor grad_out(DType::f32, problem.out.size());
    grad_out.fill_normal(problem.random);
    // Row 110 sees keys up to 110 and is seen by none of the gradients of keys 111 and up; key 115 is seen by
    // rows 115 and up.
    grad_out.set(0, 0, 110, 3, nan);
    problem.q.set(0, 0, 111, 0, poisoned ? inf : 1.0F);
    problem.k.set(0, 0, 115, 2, poisoned ? nan : 1.0F);
    problem.v.set(0, 0, 118, 2, poisoned ? inf : 1.0F);
    BothWays run(problem, grad_out, nullptr, DType::f32);
    const auto is_finite = [](const Tensor& tensor, int64_t row) {
      for (int64_t d = 0; d < 8; ++d) {
        if (!std::isfinite(tensor.get(0, 0, row, d))) return false;
      }
      return true;
    };
    for (int64_t i = 0; i < 120; ++i) {
      const bool clean = i < 110 || (i > 111 && i < 115) || (i == 111 && !poisoned) || (i > 110 && !poisoned);
      EXPECT_EQ(is_finite(run.grads.q, i), clean) << "row " << i << (poisoned ? ", poisoned" : "");
    }
    for (int64_t j = 0; j < 120; ++j) {
      const bool clean = !poisoned && j > 110;
      EXPECT_EQ(is_finite(run.grads.k, j), clean) << "key " << j << (poisoned ? ", poisoned" : "");
    }
    if (!poisoned) {
      // What is finite is right.
      std::vector<float> values = run.grads.q.values();
      for (int64_t d = 0; d < 8; ++d) values[110 * 8 + d] = nan;
      EXPECT_TRUE(is_close(values, run.plain.q, run.bound, 1.0));
    }
  }
}

TEST_P(Backward, ComputesOnlyWhatIsAskedFor) {
  Problem problem({.B = 1, .Hq = 2, .Hkv = 2, .Lq = 30, .Lk = 210, .Dk = 8, .Dv = 12}, 3);
  problem.add_bias({1, 2, 1, 210});
  problem.add_sinks();
  Tensor grad_out(DType::f32, problem.out.size());
  grad_out.fill_normal(problem.random);
  const Operands call = problem.operands();
  attention(problem.spec, call);
  OwnedGradients all(call);
  backward(problem.spec, call, {grad_out.view(), {}}, all.views());
  for (int only = 0; only < 5; ++only) {
    OwnedGradients one(call);
    const Gradients views = one.views();
    Gradients asked;
    if (only == 0) asked.q = views.q;
    if (only == 1) asked.k = views.k;
    if (only == 2) asked.v = views.v;
    if (only == 3) asked.bias = views.bias;
    if (only == 4) asked.sinks = views.sinks;
    backward(problem.spec, call, {grad_out.view(), {}}, asked);
    // The number of tasks may follow the bias: close, not equal.
    const Bound bound{1e-6, 1e-6};
    if (only == 0) {
      EXPECT_TRUE(is_close(one.q.values(), to_doubles(all.q), bound, 1.0));
    }
    if (only == 1) {
      EXPECT_EQ(one.k.values(), all.k.values());
    }
    if (only == 2) {
      EXPECT_EQ(one.v.values(), all.v.values());
    }
    if (only == 3) {
      EXPECT_EQ(one.bias.values(), all.bias.values());
    }
    if (only == 4) {
      EXPECT_EQ(one.sinks.values(), all.sinks.values());
    }
    if (only != 0) {
      EXPECT_TRUE(std::isnan(one.q.get(0, 0, 0, 0))) << "q was written";
    }
  }
}

TEST_P(Backward, OfNoKeysIsZeroAndTheSinkTakesTheGradientOfLse) {
  Problem problem({.B = 1, .Hq = 2, .Hkv = 1, .Lq = 5, .Lk = 0, .Dk = 4, .Dv = 3}, 3);
  problem.add_sinks();
  Tensor grad_out(DType::f32, problem.out.size());
  Tensor grad_lse(DType::f32, problem.lse.size());
  grad_out.fill(1.0F);
  grad_lse.fill(0.5F);
  BothWays run(problem, grad_out, &grad_lse, DType::f32);
  EXPECT_EQ(run.grads.q.values(), std::vector<float>(2 * 5 * 4, 0.0F));
  EXPECT_EQ(run.grads.sinks.values(), std::vector<float>(2, 2.5F));
}

TEST_P(Backward, RefusesWhatDoesNotFit) {
  Problem problem({.B = 1, .Hq = 2, .Hkv = 1, .Lq = 5, .Lk = 6, .Dk = 4, .Dv = 3}, 3);
  const Operands call = problem.operands();
  Tensor grad_out(DType::f32, problem.out.size());
  Tensor other(DType::f32, {1, 2, 5, 4});
  OwnedGradients grads(call);
  EXPECT_THROW(backward(problem.spec, call, {other.view(), {}}, grads.views()), std::invalid_argument);
  Gradients views = grads.views();
  views.k = other.view();
  EXPECT_THROW(backward(problem.spec, call, {grad_out.view(), {}}, views), std::invalid_argument);
  views = grads.views();
  views.bias = other.as<float>();  // there is no bias
  EXPECT_THROW(backward(problem.spec, call, {grad_out.view(), {}}, views), std::invalid_argument);
  Operands without_lse = call;
  without_lse.lse = {};
  EXPECT_THROW(backward(problem.spec, without_lse, {grad_out.view(), {}}, grads.views()),
               std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Targets, Backward, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

class BackwardGolden : public testing::EachTargetAndCase {};

TEST_P(BackwardGolden, GradientsAreTheStoredOnes) {
  testing::GoldenCase c(std::get<1>(GetParam()));
  const Extents& q = c.operands.q.size;
  const Extents out_size{q[0], q[1], q[2], c.operands.v.size[3]};
  Tensor out(DType::f32, out_size);
  Tensor lse(DType::f32, {q[0], q[1], q[2], 1});
  c.operands.out = out.view();
  c.operands.lse = lse.as<float>();
  attention(c.spec, c.operands);
  const std::vector<float> grad_out = c.file["dO"].to<float>();
  OwnedGradients grads(c.operands);
  backward(c.spec, c.operands, {View<const float>(grad_out.data(), out_size), {}}, grads.views());
  Bound bound = float32_bound(testing::largest_finite(reference(c.spec, c.operands).logits));
  EXPECT_TRUE(is_close(grads.q.values(), c.expected("dQ"), bound, 1.0));
  EXPECT_TRUE(is_close(grads.k.values(), c.expected("dK"), bound, 1.0));
  EXPECT_TRUE(is_close(grads.v.values(), c.expected("dV"), bound, 1.0));
  if (c.operands.bias) {
    EXPECT_TRUE(is_close(grads.bias.values(), c.expected("dBias"), bound, 1.0));
  }
  if (c.operands.sinks) {
    EXPECT_TRUE(is_close(grads.sinks.values(), c.expected("dSink"), bound, 1.0));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, BackwardGolden,
                         ::testing::Combine(::testing::ValuesIn(kernel::runnable_targets()),
                                            ::testing::ValuesIn(testing::golden_names())),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace regard::attention
