// What only training needs: layers that are computed twice, and the term that keeps heads apart.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "regard/layer/basic.h"
#include "regard/layer/checkpoint.h"
#include "regard/layer/diversity.h"
#include "tests/layer/support.h"

namespace regard::layer {
namespace {

using attention::Align;
using attention::Mask;
using attention::Spec;
using testing::distance;

TEST(Checkpoint, GradientsHaveTheBitsThatTheyHaveWithout) {
  at::manual_seed(1);
  const FeedForward layer(Activation::silu, 8, 24, true);
  const at::Tensor x = at::randn({3, 8}).requires_grad_(), to = at::randn({3, 8}), other = at::randn({3, 8});
  int runs = 0;
  const at::Tensor beside = at::randn({3, 8}).requires_grad_(), constant = at::randn({3, 8});
  const auto run = [&](const std::vector<at::Tensor>& in) {
    ++runs;
    return std::vector<at::Tensor>{layer.forward(in[0] * in[2]), in[0].square() * in[1]};
  };
  std::vector<at::Tensor> first;
  for (const bool twice : {false, true}) {
    x.mutable_grad() = beside.mutable_grad() = at::Tensor();
    for (const at::Tensor& parameter : layer.parameters()) parameter.mutable_grad() = at::Tensor();
    runs = 0;
    // One input has a graph of its own, one needs no gradient.
    const std::vector<at::Tensor> inputs = {x, beside.tanh(), constant};
    const std::vector<at::Tensor> out = twice ? checkpoint(inputs, run, run) : run(inputs);
    ((out[0] * to).sum() + (out[1] * other).sum()).backward();
    EXPECT_EQ(runs, twice ? 2 : 1);
    std::vector<at::Tensor> got = {x.grad(), beside.grad(), out[0].detach()};
    for (const at::Tensor& parameter : layer.parameters()) got.push_back(parameter.grad());
    if (!twice) first = got;
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], first[i])) << i;
  }
}

TEST(Checkpoint, NothingIsRunAgainWhereNoGradientIsWanted) {
  int runs = 0;
  const auto run = [&](const std::vector<at::Tensor>& in) {
    ++runs;
    return std::vector<at::Tensor>{in[0] * 2};
  };
  EXPECT_FALSE(checkpoint({at::ones({2})}, run, run)[0].requires_grad());
  const at::NoGradGuard no_grad;
  checkpoint({at::ones({2}).requires_grad_()}, run, run);
  EXPECT_EQ(runs, 2);
}

TEST(Checkpoint, ASecondDerivativeThrows) {
  const at::Tensor x = at::ones({2}).requires_grad_();
  const auto run = [](const std::vector<at::Tensor>& in) { return std::vector<at::Tensor>{in[0].square()}; };
  EXPECT_THROW(checkpoint({x}, run, run)[0].sum().backward({}, true, true), std::invalid_argument);
}

// By libtorch's operators in float64.
at::Tensor plain_diversity(const at::Tensor& q, const at::Tensor& k, const at::Tensor& visible) {
  const int64_t group = q.size(1) / k.size(1);
  const at::Tensor logits = at::matmul(q, k.repeat_interleave(group, 1).transpose(2, 3)) /
                            std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor weights = at::softmax(logits.masked_fill(visible.logical_not(), -INFINITY), -1);
  return (weights - weights.mean(1, true)).square().mean();
}

TEST(HeadDiversity, EqualsItsFormulaAndItsGradients) {
  at::manual_seed(2);
  for (const int64_t length : {1, 7, 64, 65}) {
    for (const int64_t kv_heads : {1, 2, 4}) {
      Spec spec;
      spec.mask = Mask::causal(Align::bottom_right);
      const at::Tensor q = at::randn({2, 4, length, 6}).requires_grad_();
      const at::Tensor k = at::randn({2, kv_heads, length, 6}).requires_grad_();
      const at::Tensor q64 = q.detach().to(at::kDouble).requires_grad_();
      const at::Tensor k64 = k.detach().to(at::kDouble).requires_grad_();
      const at::Tensor got = head_diversity(spec, q, k);
      const at::Tensor want = plain_diversity(q64, k64, at::ones({length, length}, at::kBool).tril());
      EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-5 * (1e-6 + want.item<double>()));
      (got * 100.0).backward();
      (want * 100.0).backward();
      if (length == 1) continue;  // one key: no gradient at all
      EXPECT_LE(distance(q.grad(), q64.grad()), 1e-5);
      EXPECT_LE(distance(k.grad(), k64.grad()), 1e-5);
    }
  }
}

TEST(HeadDiversity, IsZeroForIdenticalHeadsAndTheSameInAnyOrder) {
  at::manual_seed(3);
  const at::Tensor one = at::randn({1, 1, 9, 4});
  EXPECT_LE(head_diversity({}, one.expand({1, 5, 9, 4}), one).item<double>(), 1e-12);
  const at::Tensor q = at::randn({2, 4, 9, 4}), k = at::randn({2, 4, 9, 4});
  const at::Tensor order = at::tensor({2, 0, 3, 1}, at::kLong);
  EXPECT_NEAR(head_diversity({}, q, k).item<double>(),
              head_diversity({}, q.index_select(1, order), k.index_select(1, order)).item<double>(), 1e-9);
}

// The article calls D a loss; added with a plus, heads become one.
TEST(HeadDiversity, MinusLambdaMovesHeadsApartAndPlusTogether) {
  at::manual_seed(4);
  const at::Tensor base = at::randn({1, 1, 16, 8});
  const at::Tensor start = base + 0.3 * at::randn({1, 4, 16, 8}), k = at::randn({1, 4, 16, 8});
  for (const double sign : {-1.0, 1.0}) {
    at::Tensor q = start.clone().requires_grad_();
    const at::Tensor before = head_diversity({}, q, k);
    (before * sign).backward();
    const at::Tensor moved = q.detach() - q.grad() / q.grad().norm();
    const double after = head_diversity({}, moved, k).item<double>();
    if (sign < 0)
      EXPECT_GT(after, 1.01 * before.item<double>());
    else
      EXPECT_LT(after, 0.99 * before.item<double>());
  }
  Spec capped;
  capped.softcap = 5;
  EXPECT_THROW(head_diversity(capped, start, k), std::invalid_argument);
}

}  // namespace
}  // namespace regard::layer
