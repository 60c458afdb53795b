#include "regard/layer/dropout.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/layer/support.h"

namespace regard::layer {
namespace {

Context training(uint64_t seed) {
  Context context;
  context.training = true;
  context.dropout_seed = seed;
  return context;
}

TEST(Dropout, DropsAsManyAsAskedAndKeepsTheMean) {
  constexpr int64_t kCount = 400'000;
  const at::Tensor x = at::ones({kCount});
  for (const double p : {0.1, 0.5, 0.9}) {
    Context context = training(7);
    const at::Tensor y = dropout(x, p, context);
    const double dropped = y.eq(0).sum().item<double>() / kCount;
    EXPECT_NEAR(dropped, p, 5 * std::sqrt(p * (1 - p) / kCount)) << p;
    const double rounded = std::lround(p * 65536) / 65536.0;
    EXPECT_NEAR(y.max().item<double>(), 1 / (1 - rounded), 1e-6);
    EXPECT_EQ(y.eq(0).logical_or(y.eq(y.max())).all().item<bool>(), true);
  }
}

TEST(Dropout, DoesNothingOutsideOfTraining) {
  const at::Tensor x = at::randn({3, 5});
  Context context;
  EXPECT_TRUE(dropout(x, 0.5, context).is_same(x));
  context.training = true;
  EXPECT_TRUE(dropout(x, 0.0, context).is_same(x));
  EXPECT_EQ(context.dropout_calls, 0U);  // neither was a call
}

TEST(Dropout, IsAFunctionOfSeedCallAndPlace) {
  const at::Tensor x = at::ones({7, 33});
  Context first = training(1), again = training(1), other = training(2);
  const at::Tensor a = dropout(x, 0.5, first), b = dropout(x, 0.5, first);
  EXPECT_EQ(first.dropout_calls, 2U);
  EXPECT_FALSE(a.equal(b));
  EXPECT_TRUE(a.equal(dropout(x, 0.5, again)));
  EXPECT_FALSE(a.equal(dropout(x, 0.5, other)));
  first.dropout_calls = 1;  // a part of the pass is made again
  EXPECT_TRUE(b.equal(dropout(x, 0.5, first)));
  // The first numbers of a longer tensor share their fate.
  Context longer = training(1);
  EXPECT_TRUE(a.flatten().equal(dropout(at::ones({1000}), 0.5, longer).narrow(0, 0, x.numel())));
}

TEST(Dropout, HasTheSameBitsForAnyNumberOfThreads) {
  const at::Tensor x = at::randn({50'001});
  const int before = at::get_num_threads();
  at::Tensor first;
  for (const int threads : {1, 2, 3, 5}) {
    at::set_num_threads(threads);
    Context context = training(3);
    const at::Tensor y = dropout(x, 0.3, context);
    if (!first.defined()) first = y;
    EXPECT_TRUE(y.equal(first)) << threads;
  }
  at::set_num_threads(before);
}

TEST(Dropout, PassesGradientsThroughWhatWasKept) {
  at::Tensor x = at::randn({3, 29}, at::kDouble);
  testing::expect_gradients(
      [&] {
        Context context = training(11);
        return (dropout(x.t(), 0.4, context) * at::arange(29 * 3, at::kDouble).view({29, 3})).sum();
      },
      {x});
  Context context = training(11);
  const at::Tensor y = dropout(x, 0.4, context);
  x.mutable_grad() = at::Tensor();
  y.sum().backward();
  EXPECT_TRUE(x.grad().eq(0).equal(y.eq(0)));
}

TEST(Dropout, WhatIsDroppedIsGoneEvenIfItIsNoNumber) {
  const at::Tensor x = at::full({1000}, std::numeric_limits<float>::quiet_NaN());
  Context context = training(5);
  EXPECT_GT(dropout(x, 0.5, context).eq(0).sum().item<int64_t>(), 400);
}

TEST(Dropout, OfWeightsTakesTheNextCall) {
  Context context = training(9);
  const at::Tensor q = at::randn({1, 2, 6, 8}), k = at::randn({1, 2, 6, 8});
  const at::Tensor v = at::eye(6).expand({1, 2, 6, 6}).contiguous();  // the result is the weights
  const auto weights = [&] {
    attention::Spec spec;
    autograd::AttentionExtras extras;
    drop_weights(0.5, context, spec, extras);
    return autograd::attention(spec, q, k, v, extras);
  };
  const at::Tensor a = weights(), b = weights();
  EXPECT_EQ(context.dropout_calls, 2U);
  EXPECT_FALSE(a.equal(b));
  EXPECT_GT(a.eq(0).sum().item<int64_t>(), 0);
  context.dropout_calls = 0;
  EXPECT_TRUE(weights().equal(a));
  context.training = false;
  EXPECT_EQ(weights().eq(0).sum().item<int64_t>(), 0);
}

TEST(Dropout, MistakesAreNamed) {
  Context context = training(1);
  for (const double p : {-0.1, 1.0, 0.999999, std::nan("")}) {
    EXPECT_THROW(dropout(at::ones({2}), p, context), std::invalid_argument) << p;
  }
  EXPECT_THROW(dropout(at::ones({2}, at::kHalf), 0.5, context), std::invalid_argument);
  EXPECT_EQ(context.dropout_calls, 0U);
}

}  // namespace
}  // namespace regard::layer
