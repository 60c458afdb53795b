// Score functions and approximations against their formulas in float64, and the invariants that tie them to
// full attention.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "regard/autograd/structured.h"
#include "regard/layer/mixture.h"
#include "regard/layer/score.h"
#include "regard/layer/structured.h"
#include "tests/layer/support.h"

namespace regard::layer {
namespace {

using attention::Align;
using attention::Mask;
using testing::distance;
using testing::set_parameter;

constexpr double kTolerance = 1e-5;

at::Tensor softmax_mix(const at::Tensor& logits, const at::Tensor& v, bool causal) {
  at::Tensor open = logits;
  if (causal)
    open = logits.masked_fill(at::ones({logits.size(-2), logits.size(-1)}, at::kBool).tril().logical_not(),
                              -INFINITY);
  return at::matmul(at::softmax(open, -1), v);
}

at::Tensor full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                bool causal = false) {
  return softmax_mix(at::matmul(q, k.transpose(-1, -2)) * scale, v, causal);
}

// The same function in float32 (ours) and float64 (the formula, by libtorch's own derivatives): results and
// the gradients of all inputs. Parameters are the module's, read in float64 by the formula.
using Ours = std::function<at::Tensor(const std::vector<at::Tensor>&)>;
void expect_same(const Ours& ours, const Ours& formula, const std::vector<at::Tensor>& inputs,
                 double tolerance = kTolerance) {
  std::vector<at::Tensor> singles, doubles;
  for (const at::Tensor& input : inputs) {
    singles.push_back(input.detach().clone().requires_grad_());
    doubles.push_back(input.detach().to(at::kDouble).requires_grad_());
  }
  const at::Tensor got = ours(singles);
  const at::Tensor want = formula(doubles);
  EXPECT_LE(distance(got, want.detach()), tolerance);
  const at::Tensor grad = at::randn(want.sizes(), at::kDouble);
  (got * grad.to(at::kFloat)).sum().backward();
  (want * grad).sum().backward();
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_TRUE(singles[i].grad().defined() && doubles[i].grad().defined()) << "input " << i;
    EXPECT_LE(distance(singles[i].grad(), doubles[i].grad()), tolerance) << "input " << i;
  }
}

struct Inputs {
  at::Tensor q, k, v;
  Inputs(int64_t queries, int64_t keys, int64_t q_size, int64_t k_size, uint64_t seed) {
    at::manual_seed(seed);
    q = at::randn({2, 3, queries, q_size});
    k = at::randn({2, 3, keys, k_size});
    v = at::randn({2, 3, keys, 5});
  }
};

std::vector<at::Tensor> with_parameters(const Inputs& in, const torch::nn::Module& module) {
  std::vector<at::Tensor> all = {in.q, in.k, in.v};
  for (const at::Tensor& parameter : module.parameters()) all.push_back(parameter);
  return all;
}

// Runs the module with other tensors as its parameters, so that their gradients can be read.
at::Tensor run(Score& score, const std::vector<at::Tensor>& t, const Mask& mask) {
  std::vector<at::Tensor> parameters = score.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::NoGradGuard no_grad;
    parameters[i].copy_(t[3 + i]);
  }
  for (at::Tensor& parameter : parameters) {
    parameter.requires_grad_();
    parameter.mutable_grad() = at::Tensor();
  }
  return score.forward(t[0], t[1], t[2], mask);
}

void expect_score(const ScoreOptions& options, int64_t keys, const Ours& formula, bool causal = false) {
  const Inputs in(6, keys, options.query_size, options.key_size > 0 ? options.key_size : options.query_size,
                  1);
  Score score(options);
  const Mask mask = causal ? Mask::causal(Align::top_left) : Mask();
  std::vector<at::Tensor> inputs = with_parameters(in, score);
  std::vector<at::Tensor> singles, doubles;
  for (size_t i = 0; i < inputs.size(); ++i) {
    singles.push_back(inputs[i].detach().clone().requires_grad_(i < 3));
    doubles.push_back(inputs[i].detach().to(at::kDouble).requires_grad_());
  }
  const at::Tensor got = run(score, singles, mask);
  const at::Tensor want = formula(doubles);
  EXPECT_LE(distance(got, want.detach()), kTolerance) << name(options.kind);
  const at::Tensor grad = at::randn(want.sizes(), at::kDouble);
  (got * grad.to(at::kFloat)).sum().backward();
  (want * grad).sum().backward();
  const std::vector<at::Tensor> parameters = score.parameters();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& actual = i < 3 ? singles[i].grad() : parameters[i - 3].grad();
    const at::Tensor& expected = doubles[i].grad();
    if (!expected.defined() || expected.abs().max().item<double>() < 1e-9) {
      if (actual.defined()) {
        EXPECT_LE(actual.abs().max().item<double>(), 1e-5) << name(options.kind) << i;
      }
      continue;
    }
    ASSERT_TRUE(actual.defined()) << name(options.kind) << i;
    EXPECT_LE(distance(actual, expected), kTolerance) << name(options.kind) << i;
  }
}

at::Tensor additive_logits(const at::Tensor& q, const at::Tensor& k, const at::Tensor& vector) {
  return (at::tanh(q.unsqueeze(3) + k.unsqueeze(2)) * vector.view({1, vector.size(0), 1, 1, -1})).sum(-1);
}

TEST(Score, EveryFunctionEqualsItsFormulaAndItsGradients) {
  const testing::OneThread one_thread;
  using T = std::vector<at::Tensor>;
  for (const bool causal : {false, true}) {
    const int64_t keys = causal ? 6 : 9;
    expect_score(
        {ScoreKind::dot, 3, 4}, keys, [&](const T& t) { return full(t[0], t[1], t[2], 1, causal); }, causal);
    expect_score(
        {ScoreKind::scaled_dot, 3, 4}, keys, [&](const T& t) { return full(t[0], t[1], t[2], 0.5, causal); },
        causal);
    expect_score(
        {ScoreKind::cosine, 3, 4}, keys,
        [&](const T& t) {
          const auto unit = [](const at::Tensor& x) { return x / x.norm(2, {-1}, true); };
          const at::Tensor logits =
              at::matmul(unit(t[0]), unit(t[1]).transpose(-1, -2)) / t[3].view({1, 3, 1, 1});
          return softmax_mix(logits, t[2], causal);
        },
        causal);
    expect_score(
        {ScoreKind::general, 3, 4, 7}, keys,
        [&](const T& t) { return full(at::matmul(t[0], t[3]), t[1], t[2], 1, causal); }, causal);
    expect_score(
        {ScoreKind::additive, 3, 4, 7, 6}, keys,
        [&](const T& t) {
          return softmax_mix(additive_logits(at::matmul(t[0], t[3].transpose(1, 2)),
                                             at::matmul(t[1], t[4].transpose(1, 2)), t[5]),
                             t[2], causal);
        },
        causal);
    expect_score(
        {ScoreKind::concat, 3, 4, 7, 6}, keys,
        [&](const T& t) {
          const at::Tensor w = t[3].transpose(1, 2);
          return softmax_mix(
              additive_logits(at::matmul(t[0], w.narrow(1, 0, 4)), at::matmul(t[1], w.narrow(1, 4, 7)), t[4]),
              t[2], causal);
        },
        causal);
    expect_score(
        {ScoreKind::concat_linear, 3, 4, 7}, keys,
        [&](const T& t) {
          const at::Tensor of_q = (t[0] * t[3].narrow(1, 0, 4).view({1, 3, 1, 4})).sum(-1).unsqueeze(-1);
          const at::Tensor of_k = (t[1] * t[3].narrow(1, 4, 7).view({1, 3, 1, 7})).sum(-1).unsqueeze(-2);
          return softmax_mix(of_q + of_k, t[2], causal);
        },
        causal);
  }
}

// The tanh form over [q; k] with W = [W U] is the additive one.
TEST(Score, ConcatEqualsAdditiveWithStackedWeights) {
  const Inputs in(5, 8, 4, 6, 2);
  Score additive({ScoreKind::additive, 3, 4, 6, 5});
  Score concat({ScoreKind::concat, 3, 4, 6, 5});
  const auto w = additive.named_parameters();
  set_parameter(concat, "weight", at::cat({w["query_weight"], w["key_weight"]}, -1).detach());
  set_parameter(concat, "vector", w["vector"].detach());
  EXPECT_TRUE(
      at::equal(additive.forward(in.q, in.k, in.v).detach(), concat.forward(in.q, in.k, in.v).detach()));
}

// The trap of w^T [q; k]: every query gets the same weights, bit for bit, whatever it is.
TEST(Score, LinearConcatDoesNotLookAtTheQuery) {
  const Inputs in(7, 9, 4, 4, 3);
  const Score score({ScoreKind::concat_linear, 3, 4});
  const at::Tensor out = score.forward(in.q, in.k, in.v).detach();
  EXPECT_TRUE(at::equal(out, out.narrow(2, 0, 1).expand_as(out)));
  const Score tanh_form({ScoreKind::concat, 3, 4});
  const at::Tensor other = tanh_form.forward(in.q, in.k, in.v).detach();
  EXPECT_FALSE(at::equal(other, other.narrow(2, 0, 1).expand_as(other)));
}

// Bare cosine cannot give a key more than e^2 / (e^2 + m - 1); the temperature lifts it.
TEST(Score, CosineWithATemperatureCanBeSharp) {
  const int64_t keys = 64;
  at::Tensor k = at::zeros({1, 1, keys, 2});
  k.select(3, 0).fill_(-1);
  k[0][0][5][0] = 1;
  const at::Tensor q = at::tensor(std::vector<float>{3, 0}).view({1, 1, 1, 2});
  const at::Tensor v = at::eye(keys).view({1, 1, keys, keys});
  Score score({ScoreKind::cosine, 1, 2});
  EXPECT_GT(score.forward(q, k, v)[0][0][0][5].item<double>(), 0.99);
  set_parameter(score, "temperature", at::ones({1}));
  const double bare = score.forward(q, k, v)[0][0][0][5].item<double>();
  EXPECT_NEAR(bare, std::exp(2.0) / (std::exp(2.0) + keys - 1), 1e-5);
}

TEST(Score, NamesAndSizesAreChecked) {
  EXPECT_EQ(score_kind("concat_linear"), ScoreKind::concat_linear);
  EXPECT_STREQ(name(ScoreKind::general), "general");
  EXPECT_THROW(score_kind("dots"), std::invalid_argument);
  EXPECT_THROW(Score({ScoreKind::dot, 1, 4, 5}), std::invalid_argument);
}

TEST(Scaling, LogLengthIsOneAtTheTrainedLength) {
  const at::Tensor q = at::randn({1, 2, 8, 4});
  EXPECT_TRUE(at::equal(with_log_length(q, 64, 64, false), q));
  const at::Tensor longer = with_log_length(q, 4096, 64, false);
  EXPECT_LE(distance(longer, q * 2), 1e-6);  // ln 4096 = 2 ln 64
  const at::Tensor causal = with_log_length(q, 8, 8, true);
  EXPECT_TRUE(at::equal(causal.select(2, 7), q.select(2, 7)));
  EXPECT_LE(distance(causal.select(2, 1), q.select(2, 1) * (std::log(2.0) / std::log(8.0))), 1e-6);
  EXPECT_LE(distance(with_temperature(q, 4), q / 4), 1e-7);
  EXPECT_THROW(with_temperature(q, 0), std::invalid_argument);
  EXPECT_THROW(with_log_length(q, 8, 1, true), std::invalid_argument);
}

TEST(Structured, BlockAttentionHasTheGradientsOfItsFormula) {
  const Inputs in(12, 12, 4, 4, 4);
  expect_same(
      [](const auto& t) {
        return autograd::block_attention({4, false, {}}, t[0], t[1], t[2]);
      },
      [](const auto& t) {
        // Keys of the own block, and means of the others with ln 4.
        const at::Tensor k = at::cat({t[1], t[1].unflatten(2, {3, 4}).mean(3)}, 2);
        const at::Tensor v = at::cat({t[2], t[2].unflatten(2, {3, 4}).mean(3)}, 2);
        const at::Tensor block = at::arange(12).div(4, "floor");
        const at::Tensor own = block.unsqueeze(1).eq(block);
        const at::Tensor other = block.unsqueeze(1).ne(at::arange(3));
        const at::Tensor hidden = at::cat({own, other}, 1).logical_not();
        at::Tensor logits = at::matmul(t[0], k.transpose(-1, -2)) / 2;
        logits = logits + at::cat({at::zeros({12}), at::full({3}, std::log(4.0))}, 0);
        return at::matmul(at::softmax(logits.masked_fill(hidden, -INFINITY), -1), v);
      },
      {in.q, in.k, in.v});
}

TEST(Structured, LshAttentionOfOneBucketHasTheGradientsOfItsFormula) {
  const Inputs in(10, 10, 4, 4, 5);
  expect_same(
      [](const auto& t) {
        return autograd::lsh_attention({1, 2, 16, false, 0, {}}, t[0], t[1]);
      },
      [](const auto& t) {
        const at::Tensor k = t[0] / t[0].norm(2, {-1}, true);
        const at::Tensor logits = at::matmul(t[0], k.transpose(-1, -2)) / 2;
        return at::matmul(at::softmax(logits.masked_fill(at::eye(10).to(at::kBool), -INFINITY), -1), t[1]);
      },
      {in.q, in.v});
}

TEST(Structured, SecondDerivativesAreRefused) {
  const Inputs in(6, 6, 4, 4, 6);
  const at::Tensor q = in.q.clone().requires_grad_();
  EXPECT_THROW(autograd::block_attention({2, false, {}}, q, in.k, in.v).sum().backward({}, true, true),
               std::invalid_argument);
  EXPECT_THROW(autograd::lsh_attention({2, 1, 4, false, 0, {}}, q, in.v).sum().backward({}, true, true),
               std::invalid_argument);
}

// As many landmarks as rows, and iterations enough: full attention. Six leave a tenth. Rows that look at
// themselves make a matrix of weights that float32 can invert.
TEST(Nystrom, WithALandmarkForEachRowItIsFullAttention) {
  at::manual_seed(7);
  const at::Tensor q = at::randn({1, 2, 16, 8});
  const at::Tensor k = 2 * q;
  const at::Tensor v = at::randn({1, 2, 16, 8});
  const at::Tensor want = full(q, k, v, 1 / std::sqrt(8.0));
  EXPECT_LE(distance(nystrom_attention({16, 20, false}, q, k, v), want), 1e-4);
  const at::Tensor other = at::randn({1, 2, 16, 8});
  EXPECT_GT(distance(nystrom_attention({16, 6, false}, q, other, v), full(q, other, v, 1 / std::sqrt(8.0))),
            1e-3);
}

TEST(Nystrom, AnExampleDoesNotDependOnItsNeighboursUnlessTheStartIsShared) {
  at::manual_seed(8);
  const at::Tensor q = at::randn({2, 2, 32, 8}) * at::tensor(std::vector<float>{1, 5}).view({2, 1, 1, 1});
  const at::Tensor k = at::randn({2, 2, 32, 8});
  const at::Tensor v = at::randn({2, 2, 32, 8});
  const auto first = [&](const at::Tensor& x) { return x.narrow(0, 0, 1); };
  for (const bool shared : {false, true}) {
    const NystromOptions options{8, 6, shared};
    const at::Tensor both = first(nystrom_attention(options, q, k, v));
    const double apart = distance(nystrom_attention(options, first(q), first(k), first(v)), both);
    if (shared) {
      EXPECT_GT(apart, 1e-4);
    } else {
      EXPECT_LE(apart, 1e-6);
    }
  }
}

TEST(Nystrom, MaskedTokensTakeNoPart) {
  at::manual_seed(9);
  at::Tensor q = at::randn({1, 2, 12, 4});
  at::Tensor k = at::randn({1, 2, 12, 4});
  at::Tensor v = at::randn({1, 2, 12, 4});
  at::Tensor mask = at::ones({1, 12}, at::kBool);
  mask.narrow(1, 9, 3).fill_(0);
  const at::Tensor before = nystrom_attention({4, 6, false}, q, k, v, mask);
  for (at::Tensor* x : {&q, &k, &v}) x->narrow(2, 9, 3).fill_(NAN);
  const at::Tensor after = nystrom_attention({4, 6, false}, q, k, v, mask);
  EXPECT_TRUE(at::equal(before, after));
  EXPECT_EQ(after.narrow(2, 9, 3).abs().max().item<double>(), 0.0);
}

TEST(Linformer, WithTheIdentityItIsFullAttention) {
  const Inputs in(6, 9, 4, 4, 10);
  Linformer layer(9, 9);
  set_parameter(layer, "key_projection", at::eye(9));
  set_parameter(layer, "value_projection", at::eye(9));
  EXPECT_LE(distance(layer.forward(in.q, in.k, in.v), full(in.q, in.k, in.v, 0.5)), kTolerance);
  EXPECT_THROW(Linformer(8, 4).forward(in.q, in.k, in.v), std::invalid_argument);
  EXPECT_EQ(Linformer(9, 4, true).parameters().size(), 1U);
}

TEST(MixtureOfExperts, WithAllExpertsChosenItIsTheirWeightedSum) {
  at::manual_seed(11);
  const MixtureOfExperts layer({.width = 6, .hidden = 8, .experts = 3, .chosen = 3});
  const at::Tensor x = at::randn({2, 5, 6});
  const auto w = layer.named_parameters();
  const at::Tensor p = at::softmax(at::matmul(x, w["router.weight"].t()), -1);
  at::Tensor want = at::zeros_like(x);
  for (int64_t e = 0; e < 3; ++e) {
    const std::string name = "expert" + std::to_string(e);
    const at::Tensor hidden =
        swiglu(at::matmul(x, w[name + ".gate.weight"].t()), at::matmul(x, w[name + ".up.weight"].t()));
    want = want + at::matmul(hidden, w[name + ".down.weight"].t()) * p.narrow(-1, e, 1);
  }
  const MixtureOfExperts::Result result = layer.forward(x);
  EXPECT_LE(distance(result.out, want.detach()), kTolerance);
  EXPECT_TRUE(result.counts.eq(10).all().item<bool>());
  EXPECT_NEAR(result.balance.item<double>(), 1.0, 1e-6);
}

TEST(MixtureOfExperts, ATokenUsesItsBestExpertsAndTheBalanceGradesTheRouter) {
  at::manual_seed(12);
  const MixtureOfExperts layer({.width = 4, .hidden = 4, .experts = 4, .chosen = 1, .normalize = false});
  const at::Tensor x = at::randn({30, 4});
  const MixtureOfExperts::Result result = layer.forward(x);
  EXPECT_EQ(result.counts.sum().item<int64_t>(), 30);
  const at::Tensor p = at::softmax(at::matmul(x, layer.named_parameters()["router.weight"].t()), -1);
  const at::Tensor counts = at::bincount(p.argmax(-1), {}, 4);
  EXPECT_TRUE(at::equal(result.counts, counts));
  EXPECT_NEAR(result.balance.item<double>(), 4 * (counts / 30.0 * p.mean(0)).sum().item<double>(), 1e-5);
  result.balance.backward();
  EXPECT_GT(layer.named_parameters()["router.weight"].grad().abs().max().item<double>(), 0.0);
  // A step down this gradient spreads the load.
  EXPECT_THROW(MixtureOfExperts({.experts = 2, .chosen = 3}), std::invalid_argument);
}

}  // namespace
}  // namespace regard::layer
