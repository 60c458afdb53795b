#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "regard/attention/linear.h"
#include "regard/attention/linear_reference.h"
#include "tests/attention/linear_problem.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"
#include "tests/support/safetensors.h"

// Outside values of linear attention, and what must hold of its reference in float64.
namespace regard::attention {
namespace {

using testing::Bound;
using testing::doubles_of;
using testing::is_close;
using testing::LinearProblem;
using testing::SafeTensors;

constexpr Bound kDouble{1e-10, 1e-10};
constexpr Bound kFloat{2e-6, 1e-5};

const std::string kGolden = std::string(REGARD_GOLDEN_DIR) + "/linear/";
const std::string kOnnx = std::string(REGARD_GOLDEN_DIR) + "/onnx-linear/";

// The same problem for the kernels: arrays as float32 views.
struct Floats {
  explicit Floats(const LinearArrays& a)
      : q(floats(a.q)),
        k(floats(a.k)),
        v(floats(a.v)),
        log_decay(floats(a.log_decay)),
        beta(floats(a.beta)),
        state(floats(a.state)),
        out(static_cast<size_t>(a.batch * a.heads * a.queries * a.dv)),
        denominators(static_cast<size_t>(a.batch * a.heads * a.queries)),
        state_out(static_cast<size_t>(a.batch * a.kv_heads * a.dk * a.dv)) {
    call.q = View<const float>(q.data(), {a.batch, a.heads, a.queries, a.dk});
    call.k = View<const float>(k.data(), {a.batch, a.kv_heads, a.keys, a.dk});
    call.v = View<const float>(v.data(), {a.batch, a.kv_heads, a.keys, a.dv});
    if (!beta.empty()) call.beta = {beta.data(), {a.batch, a.kv_heads, a.keys, 1}};
    if (!log_decay.empty()) call.log_decay = {log_decay.data(), call.k.size};
    if (!state.empty()) call.state = {state.data(), {a.batch, a.kv_heads, a.dk, a.dv}};
    call.out = View<float>(out.data(), {a.batch, a.heads, a.queries, a.dv});
    call.denominators = {denominators.data(), {a.batch, a.heads, a.queries, 1}};
    call.state_out = {state_out.data(), {a.batch, a.kv_heads, a.dk, a.dv}};
  }
  static std::vector<float> floats(const std::vector<double>& x) { return {x.begin(), x.end()}; }

  std::vector<float> q, k, v, log_decay, beta, state, out, denominators, state_out;
  LinearOperands call;
};

class LinearGolden : public testing::EachTarget {};

LinearArrays arrays_of(const SafeTensors& file) {
  const auto& q = file["in.q"];
  const auto& v = file["in.v"];
  LinearArrays a;
  a.batch = q.shape[0];
  a.heads = a.kv_heads = q.shape[1];
  a.queries = a.keys = q.shape[2];
  a.dk = q.shape[3];
  a.dv = v.shape[3];
  a.q = q.to<double>();
  a.k = file["in.k"].to<double>();
  a.v = v.to<double>();
  return a;
}

TEST_P(LinearGolden, EluValuesAndGradients) {
  for (const bool causal : {false, true}) {
    const SafeTensors file(kGolden + "linear_attention_elu" + (causal ? "_causal" : "") + ".safetensors");
    const LinearArrays a = arrays_of(file);
    const LinearSpec spec{.feature = FeatureMap::elu1, .denominator = Denominator::add, .causal = causal};
    const LinearReference reference = linear_reference(spec, a);
    EXPECT_TRUE(is_close(reference.out, file["out.out"].to<double>(), kDouble));
    EXPECT_TRUE(is_close(reference.state, file["out.state"].to<double>(), kDouble));
    EXPECT_TRUE(is_close(reference.norm, file["out.norm"].to<double>(), kDouble));
    const std::vector<double> dout = file["dout.out"].to<double>();
    const LinearReferenceGradients grad = linear_reference_backward(spec, a, dout);
    EXPECT_TRUE(is_close(grad.q, file["gradin.q"].to<double>(), kDouble));
    EXPECT_TRUE(is_close(grad.k, file["gradin.k"].to<double>(), kDouble));
    EXPECT_TRUE(is_close(grad.v, file["gradin.v"].to<double>(), kDouble));
    Floats floats(a);
    linear_attention(spec, floats.call);
    EXPECT_TRUE(is_close(floats.out, file["out.out"].to<double>(), kFloat));
    const std::vector<float> grad_out = Floats::floats(dout);
    std::vector<float> q(a.q.size()), k(a.k.size()), v(a.v.size());
    LinearGradients wanted;
    wanted.q = View<float>(q.data(), floats.call.q.size);
    wanted.k = View<float>(k.data(), floats.call.k.size);
    wanted.v = View<float>(v.data(), floats.call.v.size);
    linear_backward(spec, floats.call, {View<const float>(grad_out.data(), floats.call.out.size), {}, {}},
                    wanted);
    EXPECT_TRUE(is_close(q, file["gradin.q"].to<double>(), kFloat));
    EXPECT_TRUE(is_close(k, file["gradin.k"].to<double>(), kFloat));
    EXPECT_TRUE(is_close(v, file["gradin.v"].to<double>(), kFloat));
  }
}

// "Efficient attention": the features are softmaxes, made before the call.
void soften(std::vector<double>& x, int64_t rows, int64_t step, int64_t row_step, int64_t count) {
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      double& value = x[static_cast<size_t>(r * row_step + i * step)];
      value = std::exp(value);
      sum += value;
    }
    for (int64_t i = 0; i < count; ++i) x[static_cast<size_t>(r * row_step + i * step)] /= sum;
  }
}

LinearArrays efficient(const SafeTensors& file, bool causal) {
  LinearArrays a = arrays_of(file);
  const int64_t heads = a.batch * a.heads;
  soften(a.q, heads * a.queries, 1, a.dk, a.dk);
  for (double& x : a.q) x /= std::sqrt(static_cast<double>(a.dk));
  if (causal) {
    for (double& x : a.k) x = std::exp(x);
    return a;
  }
  LinearArrays turned = a;
  for (int64_t h = 0; h < heads; ++h) {
    std::vector<double> head(a.k.begin() + h * a.keys * a.dk, a.k.begin() + (h + 1) * a.keys * a.dk);
    soften(head, a.dk, a.dk, 1, a.keys);
    std::copy(head.begin(), head.end(), turned.k.begin() + h * a.keys * a.dk);
  }
  return turned;
}

TEST_P(LinearGolden, SoftmaxFeatures) {
  const SafeTensors plain(kGolden + "linear_attention_softmax_qk.safetensors");
  const LinearArrays a = efficient(plain, false);
  const LinearSpec all{.causal = false};
  EXPECT_TRUE(is_close(linear_reference(all, a).out, plain["out.out"].to<double>(), kDouble));
  Floats floats(a);
  linear_attention(all, floats.call);
  EXPECT_TRUE(is_close(floats.out, plain["out.out"].to<double>(), kFloat));

  const SafeTensors causal(kGolden + "linear_attention_softmax_qk_causal_bucket1.safetensors");
  const LinearSpec spec{.denominator = Denominator::clamp, .epsilon = 1e-3};
  const LinearArrays c = efficient(causal, true);
  EXPECT_TRUE(is_close(linear_reference(spec, c).out, causal["out.out"].to<double>(), kDouble));
  Floats of_causal(c);
  linear_attention(spec, of_causal.call);
  EXPECT_TRUE(is_close(of_causal.out, causal["out.out"].to<double>(), kFloat));
}

// A public package excludes a token's whole bucket: rows read the state before it, those of the first bucket
// nothing. Known, and not copied: a row here sees its own key.
TEST(LinearReference, WhatPublicBucketsLeaveOut) {
  const SafeTensors file(kGolden + "linear_attention_softmax_qk_causal_bucket4.safetensors");
  const LinearArrays a = efficient(file, true);
  const LinearSpec spec{.denominator = Denominator::clamp, .epsilon = 1e-3, .causal = false};
  const std::vector<double> published = file["out.out"].to<double>();
  LinearArrays second = a;
  second.key_lengths.assign(static_cast<size_t>(a.batch), 4);
  const std::vector<double> read = linear_reference(spec, second).out;
  for (int64_t h = 0; h < a.batch * a.heads; ++h)
    for (int64_t i = 0; i < 8; ++i)
      for (int64_t f = 0; f < a.dv; ++f) {
        const auto at = static_cast<size_t>((h * 8 + i) * a.dv + f);
        EXPECT_NEAR(published[at], i < 4 ? 0.0 : read[at], 1e-10);
      }
}

std::vector<std::string> onnx_cases() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(kOnnx))
    if (file.path().extension() == ".safetensors") names.push_back(file.path().stem());
  return names;
}

// [B, T, H * D] -> [B, H, T, D].
std::vector<double> by_head(const testing::Array& array, int64_t heads) {
  const std::vector<double> from = array.to<double>();
  const int64_t features = array.shape[2] / heads;
  std::vector<double> to(from.size());
  for (int64_t b = 0; b < array.shape[0]; ++b)
    for (int64_t t = 0; t < array.shape[1]; ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t f = 0; f < features; ++f)
          to[static_cast<size_t>(((b * heads + h) * array.shape[1] + t) * features + f)] =
              from[static_cast<size_t>((b * array.shape[1] + t) * array.shape[2] + h * features + f)];
  return to;
}

// Copies an array's last axis, or its heads, until there are `count` of each.
std::vector<double> repeat(const std::vector<double>& from, int64_t rows, int64_t count) {
  std::vector<double> to;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < count; ++i) to.push_back(from[static_cast<size_t>(r)]);
  return to;
}

TEST_P(LinearGolden, OnnxLinearAttention) {
  const std::vector<std::string> names = onnx_cases();
  ASSERT_EQ(names.size(), 11);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const SafeTensors file(kOnnx + name + ".safetensors");
    const auto attributes = nlohmann::json::parse(file.metadata()["attributes"].get<std::string>());
    LinearArrays a;
    a.heads = attributes["q_num_heads"];
    a.kv_heads = attributes["kv_num_heads"];
    a.batch = file["in.query"].shape[0];
    a.queries = a.keys = file["in.query"].shape[1];
    a.dk = file["in.key"].shape[2] / a.kv_heads;
    a.dv = file["in.value"].shape[2] / a.kv_heads;
    a.q = by_head(file["in.query"], a.heads);
    a.k = by_head(file["in.key"], a.kv_heads);
    a.v = by_head(file["in.value"], a.kv_heads);
    // What the update rule does not name is not used.
    const std::string rule = attributes.value("update_rule", "gated_delta");
    const bool gated = rule.find("gated") != std::string::npos;
    const bool delta = rule.find("delta") != std::string::npos;
    const int64_t rows = a.batch * a.kv_heads * a.keys;
    if (gated) {
      const bool per_feature = file["in.decay"].shape[2] == a.kv_heads * a.dk;
      a.log_decay = by_head(file["in.decay"], a.kv_heads);
      if (!per_feature) a.log_decay = repeat(a.log_decay, rows, a.dk);
    }
    if (delta) {
      if (file["in.beta"].shape[2] == a.kv_heads) {
        a.beta = by_head(file["in.beta"], a.kv_heads);
      } else {  // one for all heads
        const std::vector<double> beta = file["in.beta"].to<double>();
        for (int64_t b = 0; b < a.batch; ++b)
          for (int64_t h = 0; h < a.kv_heads; ++h)
            for (int64_t t = 0; t < a.keys; ++t) a.beta.push_back(beta[static_cast<size_t>(b * a.keys + t)]);
      }
    }
    if (file.has("in.past_state")) a.state = file["in.past_state"].to<double>();
    LinearSpec spec;
    spec.scale = attributes.value("scale", 1 / std::sqrt(static_cast<double>(a.dk)));
    const LinearReference reference = linear_reference(spec, a);
    // [B, T, H * D]
    const std::vector<double> wanted = by_head(file["out.output"], a.heads);
    EXPECT_TRUE(is_close(reference.out, wanted, kFloat));  // their numbers are float32
    EXPECT_TRUE(is_close(reference.state, file["out.present_state"].to<double>(), kFloat));
    for (const LinearForm form : {LinearForm::recurrent, LinearForm::chunked}) {
      spec.form = form;
      Floats floats(a);
      linear_attention(spec, floats.call);
      EXPECT_TRUE(is_close(floats.out, wanted, kFloat));
      EXPECT_TRUE(is_close(floats.state_out, file["out.present_state"].to<double>(), kFloat));
    }
  }
}

// Recurrence, explicit weights, and any split with the state handed on: one result (float64).
TEST(LinearReference, RecurrentParallelAndChunkedAreOne) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20; ++round) {
    testing::LinearCase c = testing::random_linear_case(random);
    c.sizes = {1, 1, 1, 23, 23, 5, 4};
    c.spec.causal = true;
    c.lengths = false;
    SCOPED_TRACE(c.to_string());
    LinearProblem problem(c, static_cast<uint64_t>(round));
    const LinearArrays a = problem.arrays();
    const LinearReference whole = linear_reference(problem.spec, a);
    LinearReference joined;
    LinearArrays part = a;
    int64_t begin = 0;
    for (const int64_t count : {1, 7, 1, 4, 10}) {  // the last ones ragged
      part.queries = part.keys = count;
      const auto cut = [&](const std::vector<double>& all, int64_t width) {
        return all.empty()
                   ? all
                   : std::vector<double>(all.begin() + begin * width, all.begin() + (begin + count) * width);
      };
      part.q = cut(a.q, 5);
      part.k = cut(a.k, 5);
      part.v = cut(a.v, 4);
      part.log_decay = cut(a.log_decay, 5);
      part.beta = cut(a.beta, 1);
      const LinearReference some = linear_reference(problem.spec, part);
      joined.out.insert(joined.out.end(), some.out.begin(), some.out.end());
      part.state = joined.state = some.state;
      if (problem.spec.denominator != Denominator::none) part.norm = some.norm;
      begin += count;
    }
    ASSERT_EQ(begin, 23);
    EXPECT_TRUE(is_close(joined.out, whole.out, kDouble));
    EXPECT_TRUE(is_close(joined.state, whole.state, kDouble));
    if (c.delta) continue;
    // Explicit weights and what the state before adds are the whole output.
    const std::vector<double> weights = linear_weights(problem.spec, problem.operands(), 0, 0);
    LinearArrays nothing = a;
    nothing.v.assign(nothing.v.size(), 0.0);
    std::vector<double> out = linear_reference(problem.spec, nothing).out;
    for (int64_t i = 0; i < 23; ++i)
      for (int64_t j = 0; j <= i; ++j)
        for (int64_t f = 0; f < 4; ++f)
          out[static_cast<size_t>(i * 4 + f)] +=
              weights[static_cast<size_t>(i * 23 + j)] * a.v[static_cast<size_t>(j * 4 + f)];
    EXPECT_TRUE(is_close(out, whole.out, kDouble));
  }
}

TEST(LinearReference, LightningWithoutDecayIsPlainLinearAttentionAndItsWeightsArePowers) {
  testing::LinearCase c;
  c.sizes = {1, 1, 1, 12, 12, 4, 3};
  c.gate = testing::Gate::head;
  LinearProblem problem(c, 1);
  problem.log_decay.set(0, 0, 0, 0, 0.0F);
  LinearArrays with = problem.arrays();
  LinearArrays without = with;
  without.log_decay.clear();
  EXPECT_EQ(linear_reference(problem.spec, with).out, linear_reference(problem.spec, without).out);
  problem.log_decay.set(0, 0, 0, 0, -0.25F);
  const std::vector<double> decayed = linear_weights(problem.spec, problem.operands(), 0, 0);
  problem.log_decay.set(0, 0, 0, 0, 0.0F);
  const std::vector<double> plain = linear_weights(problem.spec, problem.operands(), 0, 0);
  for (int64_t i = 0; i < 12; ++i)
    for (int64_t j = 0; j <= i; ++j)
      EXPECT_NEAR(decayed[static_cast<size_t>(i * 12 + j)],
                  plain[static_cast<size_t>(i * 12 + j)] * std::exp(-0.25 * static_cast<double>(i - j)),
                  1e-12);
}

// Orthonormal keys with beta = 1 are recalled exactly; a key written again replaces its value.
TEST(LinearReference, TheDeltaRuleRecallsAndReplaces) {
  LinearArrays a;
  a.queries = a.keys = 5;
  a.dk = 4;
  a.dv = 2;
  a.k.assign(20, 0.0);
  for (int64_t t = 0; t < 4; ++t) a.k[static_cast<size_t>(t * 4 + t)] = 1;
  a.k[16] = 1;  // the first key again
  a.v = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  a.q = a.k;
  a.beta.assign(5, 1.0);
  const LinearReference result = linear_reference({}, a);
  EXPECT_TRUE(is_close(result.out, a.v, kDouble));
  EXPECT_TRUE(is_close(result.state, {9, 10, 3, 4, 5, 6, 7, 8}, kDouble));
}

// Every operand, by central differences in float64.
TEST(LinearReference, GradientsEqualFiniteDifferences) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  for (int round = 0; round < 24; ++round) {
    testing::LinearCase c = testing::random_linear_case(random);
    c.sizes = {2, 2, 1, 6, c.spec.causal ? 6 : 4, 3, 2};
    c.strongest = 1;
    SCOPED_TRACE(c.to_string());
    LinearProblem problem(c, static_cast<uint64_t>(round));
    LinearArrays a = problem.arrays();
    const LinearReference base = linear_reference(problem.spec, a);
    std::vector<double> grad_out(base.out.size()), grad_state(base.state.size()), grad_norm(base.norm.size());
    for (auto* grad : {&grad_out, &grad_state, &grad_norm})
      for (double& x : *grad) x = normal(random);
    if (problem.spec.denominator == Denominator::none) grad_norm.clear();
    const LinearReferenceGradients grad =
        linear_reference_backward(problem.spec, a, grad_out, grad_state, grad_norm);
    const auto loss = [&] {
      const LinearReference r = linear_reference(problem.spec, a);
      double sum = 0;
      for (size_t i = 0; i < grad_out.size(); ++i) sum += grad_out[i] * r.out[i];
      for (size_t i = 0; i < grad_state.size(); ++i) sum += grad_state[i] * r.state[i];
      for (size_t i = 0; i < grad_norm.size(); ++i) sum += grad_norm[i] * r.norm[i];
      return sum;
    };
    const auto check = [&](const char* name, std::vector<double>& x, const std::vector<double>& analytic) {
      ASSERT_EQ(x.size(), analytic.size()) << name;
      std::vector<double> numeric;
      constexpr double h = 1e-5;
      for (double& value : x) {
        const double kept = value;
        value = kept + h;
        const double up = loss();
        value = kept - h;
        numeric.push_back((up - loss()) / (2 * h));
        value = kept;
      }
      EXPECT_TRUE(is_close(analytic, numeric, {1e-6, 1e-6}, 1.0)) << name;
    };
    check("q", a.q, grad.q);
    check("k", a.k, grad.k);
    check("v", a.v, grad.v);
    check("log_decay", a.log_decay, grad.log_decay);
    check("beta", a.beta, grad.beta);
    check("state", a.state, grad.state);
    check("norm", a.norm, grad.norm);
  }
}

// K of variants: q.k = (q+ k+ + q- k-) - (q+ k- + q- k+), PolaFormer's two streams.
TEST(LinearReference, PolarityStreamsAddUpToTheProduct) {
  testing::LinearCase c;
  c.sizes = {1, 1, 1, 7, 7, 6, 7};
  c.spec.causal = false;
  LinearProblem problem(c, 5);
  const LinearArrays a = problem.arrays();
  const auto streams = [](const std::vector<double>& x, int64_t features, double first, double second) {
    std::vector<double> both;  // [first half: relu(first x); second half: relu(second x)]
    for (size_t at = 0; at < x.size(); at += static_cast<size_t>(features)) {
      for (const double sign : {first, second})
        for (int64_t f = 0; f < features; ++f)
          both.push_back(std::max(0.0, sign * x[at + static_cast<size_t>(f)]));
    }
    return both;
  };
  LinearArrays same = a;
  same.dk = 12;
  same.q = streams(a.q, 6, 1, -1);
  same.k = streams(a.k, 6, 1, -1);
  LinearArrays opposite = same;
  opposite.q = streams(a.q, 6, -1, 1);
  const std::vector<double> whole = linear_reference(problem.spec, a).out;
  const std::vector<double> plus = linear_reference(problem.spec, same).out;
  const std::vector<double> minus = linear_reference(problem.spec, opposite).out;
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(plus[i] - minus[i], whole[i], 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Targets, LinearGolden, ::testing::ValuesIn(kernel::runnable_targets()));

}  // namespace
}  // namespace regard::attention
