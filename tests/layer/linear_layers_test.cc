#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <stdexcept>

#include "regard/autograd/linear.h"
#include "regard/layer/lightning.h"
#include "regard/layer/linear_attention.h"
#include "regard/layer/polaformer.h"
#include "regard/layer/transnormer.h"
#include "tests/layer/support.h"

// Layers over linear attention: outside values, decoding, gradients.
namespace regard::layer {
namespace {

using attention::Denominator;
using attention::LinearSpec;
using autograd::LinearExtras;
using testing::distance;
using testing::expect_gradients;
using testing::Golden;
using testing::set_parameter;
using Feature = LinearAttentionOptions::Feature;

at::Tensor doubles(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble);
}

// The operator in float32 against itself in float64, which is the reference.
TEST(LinearOperator, GradientsOfEveryOperandEqualTheReferences) {
  at::manual_seed(1);
  for (const bool delta : {false, true}) {
    LinearSpec spec;
    if (!delta) {
      spec.feature = attention::FeatureMap::elu1;
      spec.denominator = Denominator::add;
    }
    const auto leaf = [](const at::Tensor& x) { return x.to(at::kFloat).to(at::kDouble); };
    std::vector<at::Tensor> wide = {leaf(doubles({2, 4, 70, 9}) / 3),
                                    leaf(doubles({2, 2, 70, 9}) / 3),
                                    leaf(doubles({2, 2, 70, 11})),
                                    leaf(-at::rand({1, 2, 1, 1}, at::kDouble)),
                                    leaf(at::rand({2, 1, 70, 1}, at::kDouble)),
                                    leaf(doubles({2, 2, 9, 11})),
                                    leaf(at::rand({2, 2, 9, 1}, at::kDouble) + 0.5)};
    if (delta)
      wide[6] = at::Tensor();
    else
      wide[4] = at::Tensor();
    const auto run = [&](at::ScalarType type) {
      std::vector<at::Tensor> t;
      for (const at::Tensor& x : wide)
        t.push_back(x.defined() ? x.to(type, false, true).requires_grad_() : x);
      LinearExtras extras{t[3], t[4], t[5], t[6], {}};
      const autograd::LinearResult r = autograd::linear_attention(spec, t[0], t[1], t[2], extras);
      at::Tensor loss = (r.out * r.out.sin()).sum() + r.state.cos().sum();
      if (r.norm.defined()) loss = loss + r.norm.square().sum() * 0.01;
      loss.backward();
      std::vector<at::Tensor> results{r.out.detach(), r.state.detach()};
      for (const at::Tensor& x : t)
        if (x.defined()) results.push_back(x.grad());
      return results;
    };
    const auto got = run(at::kFloat);
    const auto want = run(at::kDouble);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(distance(got[i], want[i]), 3e-5) << i << " " << delta;
  }
}

TEST(LinearOperator, RefusesSecondDerivativesAndOtherTypes) {
  const at::Tensor q = at::randn({1, 1, 4, 3}).requires_grad_();
  const at::Tensor v = at::randn({1, 1, 4, 2});
  const at::Tensor out = autograd::linear_attention({}, q, q, v).out;
  EXPECT_THROW(torch::autograd::grad({out.sum()}, {q}, {}, true, true), std::invalid_argument);
  LinearExtras extras;
  extras.log_decay = at::zeros({1, 1, 4, 1}, at::kDouble);
  EXPECT_THROW(autograd::linear_attention({}, q, q, v, extras), std::invalid_argument);
  EXPECT_THROW(autograd::linear_attention({}, q, q.narrow(2, 0, 3), v.narrow(2, 0, 3)),
               std::invalid_argument);
}

TEST(Lightning, PublishedLayersForwardAndBackward) {
  for (const int64_t layer : {0, 1}) {
    const Golden file("linear/minimax_lightning_layer" + std::to_string(layer));
    EXPECT_LE(distance(-lightning_log_decays(4, layer, 3), file.f64("buffer.slope_rate").view({4})), 1e-6);
    Lightning module({.width = 16, .heads = 4, .head_size = 6, .layer = layer, .layers = 3});
    const std::pair<const char*, const char*> names[] = {{"norm.weight", "norm.weight"},
                                                         {"qkv.weight", "qkv_proj.weight"},
                                                         {"gate.weight", "output_gate.weight"},
                                                         {"out.weight", "out_proj.weight"}};
    for (const auto& [ours, theirs] : names)
      set_parameter(module, ours, file.f32("w." + std::string(theirs)));
    const at::Tensor x = file.f32("in.x").requires_grad_();
    LinearState state;
    const at::Tensor out = module.forward(x, file.f32("in.token_mask").to(at::kBool), &state);
    EXPECT_LE(distance(out, file.f64("out.out")), 1e-5);
    EXPECT_LE(distance(state.state, file.f64("out.state")), 1e-5);
    (out * file.f32("dout.out")).sum().backward();
    EXPECT_LE(distance(x.grad(), file.f64("gradin.x")), 1e-5);
    for (const auto& [ours, theirs] : names)
      EXPECT_LE(distance(module.named_parameters()[ours].grad(), file.f64("gradw." + std::string(theirs))),
                1e-5)
          << ours;
  }
}

// One thread: these are many tiny calls.
struct OneThread {
  const int before = at::get_num_threads();
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
};

// forward(x) at once, and in pieces with the state handed on.
template <class State, class Run>
void expect_any_split(int64_t width, const Run& run) {
  const OneThread one;
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({2, 83, width});
  const at::Tensor whole = run(x, static_cast<State*>(nullptr));
  State state;
  std::vector<at::Tensor> pieces;
  int64_t begin = 0;
  for (const int64_t count : {1, 30, 1, 1, 7, 43}) {
    pieces.push_back(run(x.narrow(1, begin, count), &state));
    begin += count;
    EXPECT_EQ(state.position, begin);
  }
  EXPECT_LE(distance(at::cat(pieces, 1), whole), 1e-5);
  // A fork goes its own way.
  State fork = state;
  const at::Tensor next = at::randn({2, 1, width});
  const at::Tensor once = run(next, &state);
  EXPECT_TRUE(at::equal(run(next, &fork), once));
  EXPECT_FALSE(at::equal(run(next, &fork), once));
}

TEST(LinearLayers, DecodeEqualsPrefillAtAnySplit) {
  at::manual_seed(2);
  for (const Feature feature : {Feature::elu1, Feature::relu, Feature::cosformer}) {
    const LinearAttention module({.width = 24, .heads = 4, .kv_heads = 2, .feature = feature, .length = 100});
    expect_any_split<LinearState>(
        24, [&](const at::Tensor& x, LinearState* state) { return module.forward(x, {}, state); });
  }
  const Lightning lightning({.width = 24, .heads = 3, .head_size = 8, .layer = 1, .layers = 4});
  expect_any_split<LinearState>(
      24, [&](const at::Tensor& x, LinearState* state) { return lightning.forward(x, {}, state); });
  for (const auto gate :
       {GatedDeltaOptions::Gate::none, GatedDeltaOptions::Gate::head, GatedDeltaOptions::Gate::feature})
    for (const bool delta : {false, true}) {
      const GatedDelta gated({.width = 24, .heads = 3, .gate = gate, .delta = delta});
      expect_any_split<LinearState>(
          24, [&](const at::Tensor& x, LinearState* state) { return gated.forward(x, state); });
    }
  const NormAttention norm({.width = 24, .heads = 3});
  expect_any_split<LinearState>(
      24, [&](const at::Tensor& x, LinearState* state) { return norm.forward(x, state); });
  for (const int64_t block : {1, 8, 64}) {
    const DiagAttention diagonal({.width = 24, .heads = 3, .block = block});
    const auto run = [&](const at::Tensor& x, BlockState* state) { return diagonal.forward(x, state); };
    if (block > 1) expect_any_split<BlockState>(24, run);
  }
  const PolaFormer pola({.width = 24, .heads = 3, .causal = true});
  expect_any_split<LinearState>(
      24, [&](const at::Tensor& x, LinearState* state) { return pola.forward(x, state); });
}

TEST(LinearLayers, CausalOnesDoNotLookAhead) {
  const OneThread one;
  at::manual_seed(3);
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({1, 70, 24});
  at::Tensor changed = x.clone();
  changed.narrow(1, 41, 29).fill_(NAN);
  const auto expect_same = [&](const auto& run, const char* name) {
    EXPECT_LE(distance(run(changed).narrow(1, 0, 41), run(x).narrow(1, 0, 41)), 1e-6) << name;
    EXPECT_TRUE(run(changed).narrow(1, 41, 29).isnan().all().template item<bool>()) << name;
  };
  const LinearAttention elu({.width = 24, .heads = 4});
  const LinearAttention cos({.width = 24, .heads = 4, .feature = Feature::cosformer});
  const Lightning lightning({.width = 24, .heads = 3, .head_size = 8});
  const GatedDelta gated({.width = 24, .heads = 3});
  const NormAttention norm({.width = 24, .heads = 3});
  const DiagAttention diagonal({.width = 24, .heads = 3, .block = 16});
  const PolaFormer pola({.width = 24, .heads = 3, .causal = true});
  expect_same([&](const at::Tensor& y) { return elu.forward(y); }, "elu");
  expect_same([&](const at::Tensor& y) { return cos.forward(y); }, "cosformer");
  expect_same([&](const at::Tensor& y) { return lightning.forward(y); }, "lightning");
  expect_same([&](const at::Tensor& y) { return gated.forward(y); }, "gated");
  expect_same([&](const at::Tensor& y) { return norm.forward(y); }, "norm");
  expect_same([&](const at::Tensor& y) { return diagonal.forward(y); }, "diagonal");
  expect_same([&](const at::Tensor& y) { return pola.forward(y); }, "polaformer");
}

// In float64, every parameter and the input.
template <class Module, class Run>
void expect_layer_gradients(Module& module, const at::Tensor& x, const Run& run) {
  const OneThread one;
  module.to(at::kDouble);
  std::vector<at::Tensor> leaves{x};
  for (const at::Tensor& parameter : module.parameters()) {
    const at::NoGradGuard no_grad;
    leaves.push_back(parameter);
  }
  const at::Tensor direction = at::randn_like(run());
  expect_gradients([&] { return (run() * direction).sum(); }, leaves);
}

TEST(LinearLayers, GradientsEqualFiniteDifferences) {
  at::manual_seed(4);
  const at::Tensor x = doubles({1, 5, 8});
  LinearAttention elu({.width = 8, .heads = 2, .kv_heads = 1});
  expect_layer_gradients(elu, x, [&] { return elu.forward(x); });
}

TEST(LinearLayers, LightningGatedAndNormGradientsEqualFiniteDifferences) {
  at::manual_seed(5);
  const at::Tensor x = doubles({1, 4, 8});
  Lightning lightning({.width = 8, .heads = 2, .head_size = 3, .layers = 2});
  expect_layer_gradients(lightning, x, [&] { return lightning.forward(x); });
  for (const auto gate : {GatedDeltaOptions::Gate::head, GatedDeltaOptions::Gate::feature}) {
    GatedDelta gated({.width = 8, .heads = 2, .gate = gate});
    expect_layer_gradients(gated, x, [&] { return gated.forward(x); });
  }
  NormAttention norm({.width = 8, .heads = 2});
  expect_layer_gradients(norm, x, [&] { return norm.forward(x); });
}

TEST(PolaFormer, GradientsEqualFiniteDifferences) {
  at::manual_seed(6);
  PolaFormer image({.width = 4, .heads = 1, .height = 2, .columns = 3, .kernel = 3});
  const at::Tensor x = doubles({1, 6, 4});
  expect_layer_gradients(image, x, [&] { return image.forward(x); });
}

TEST(PolaFormer, APowerHasNoGradientWhereItsFeatureIsZero) {
  PolaFormer module({.width = 4, .heads = 1});
  module.to(at::kDouble);
  const at::Tensor power = module.named_parameters()["power"].requires_grad_();
  module.features(at::zeros({1, 1, 3, 4}, at::kDouble)).sum().backward();
  EXPECT_TRUE(at::equal(power.grad(), at::zeros_like(power)));
}

// alpha = 0 makes all powers 1: the streams are the halves of the product, and of features of one sign the
// first alone is ReLU linear attention.
TEST(PolaFormer, WithoutPowersItsStreamsMakeTheProduct) {
  at::manual_seed(7);
  const PolaFormer module({.width = 12, .heads = 2, .alpha = 0});
  const at::Tensor q = at::randn({1, 2, 5, 6}), k = at::randn({1, 2, 7, 6});
  const at::Tensor same = at::matmul(module.features(q), module.features(k).transpose(2, 3));
  const at::Tensor opposite = at::matmul(module.features(q, true), module.features(k).transpose(2, 3));
  EXPECT_LE(distance(same - opposite, at::matmul(q, k.transpose(2, 3))), 1e-6);
  EXPECT_LE(distance(module.features(q.abs()).narrow(-1, 0, 6), q.abs()), 1e-6);
  EXPECT_EQ(module.features(q.abs()).narrow(-1, 6, 6).abs().max().item<float>(), 0.0F);
}

TEST(PolaFormer, EntropyOfTheWeightsFallsWithThePower) {
  at::manual_seed(8);
  const at::Tensor x = at::rand({50}, at::kDouble);
  double before = 1e9;
  for (const double p : {1.0, 1.5, 2.0, 3.0, 5.0}) {
    const at::Tensor w = x.pow(p) / x.pow(p).sum();
    const double entropy = -(w * w.log()).sum().item<double>();
    EXPECT_LT(entropy, before);
    before = entropy;
  }
}

TEST(PolaFormer, RefusesOtherNumbersOfTokensAndOddHeads) {
  EXPECT_THROW(PolaFormer({.width = 9, .heads = 3}), std::invalid_argument);
  EXPECT_THROW(PolaFormer({.width = 8, .heads = 2, .height = 2, .columns = 2, .causal = true}),
               std::invalid_argument);
  const PolaFormer image({.width = 8, .heads = 2, .height = 2, .columns = 3});
  EXPECT_THROW(image.forward(at::randn({1, 5, 8})), std::invalid_argument);
}

TEST(CosFormer, EqualsItsExplicitMatrix) {
  at::manual_seed(9);
  const int64_t length = 11;
  const at::Tensor q = doubles({1, 2, length, 5}), k = doubles({1, 2, length, 5}),
                   v = doubles({1, 2, length, 3});
  const at::Tensor i = at::arange(1, length + 1, at::kDouble);
  const at::Tensor turn = at::cos(M_PI / 2 / static_cast<double>(length) * (i.unsqueeze(1) - i.unsqueeze(0)));
  EXPECT_GT(turn.min().item<double>(), 0);
  for (const bool causal : {false, true}) {
    at::Tensor weights = at::matmul(at::relu(q), at::relu(k).transpose(2, 3)) * turn;
    if (causal) weights = weights.tril();
    const at::Tensor want = at::matmul(weights, v) / weights.sum(-1, true).clamp_min(1e-6);
    LinearSpec spec;
    spec.denominator = Denominator::clamp;
    spec.causal = causal;
    const at::Tensor q2 = cosformer_features(q, 0, length), k2 = cosformer_features(k, 0, length);
    EXPECT_LE(distance(autograd::linear_attention(spec, q2, k2, v).out, want), 1e-12);
    EXPECT_LE(
        distance(autograd::linear_attention(spec, q2.to(at::kFloat), k2.to(at::kFloat), v.to(at::kFloat)).out,
                 want),
        1e-5);
  }
  const LinearAttention module({.width = 4, .heads = 1, .feature = Feature::cosformer, .length = 8});
  EXPECT_THROW(module.forward(at::randn({1, 9, 4})), std::invalid_argument);
}

TEST(TransNormer, TheScaleOfValuesDoesNotMatter) {
  at::manual_seed(10);
  NormAttention module({.width = 12, .heads = 3, .norm_epsilon = 0});
  const at::NoGradGuard no_grad;
  module.named_parameters()["v.bias"].zero_();
  const at::Tensor x = at::randn({1, 20, 12});
  const at::Tensor before = module.forward(x).clone();
  module.named_parameters()["v.weight"].mul_(37.5);
  EXPECT_LE(distance(module.forward(x), before), 1e-5);
}

TEST(TransNormer, TheDiagonalIsSoftmaxInsideBlocks) {
  at::manual_seed(11);
  for (const bool causal : {false, true}) {
    const DiagAttention module({.width = 8, .heads = 1, .block = 4, .causal = causal});
    const at::NoGradGuard no_grad;
    const at::Tensor x = at::randn({1, 10, 8});
    const auto parameters = module.named_parameters();
    const auto apply = [&](const std::string& name, const at::Tensor& y) {
      return at::linear(y, parameters[name + ".weight"], parameters[name + ".bias"]);
    };
    at::Tensor scores = at::matmul(apply("q", x), apply("k", x).transpose(1, 2)) / std::sqrt(8.0);
    const at::Tensor block = at::arange(10).floor_divide(4);
    scores = scores.masked_fill(block.unsqueeze(0) != block.unsqueeze(1), -INFINITY);
    if (causal)
      scores = scores.masked_fill(at::arange(10).unsqueeze(0) > at::arange(10).unsqueeze(1), -INFINITY);
    EXPECT_LE(distance(module.forward(x), apply("out", at::matmul(at::softmax(scores, -1), apply("v", x)))),
              1e-5);
  }
}

}  // namespace
}  // namespace regard::layer
