// Whole layers against PyTorch, transformers and nystrom-attention: forward and gradients.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "regard/layer/attention.h"
#include "regard/layer/block.h"
#include "regard/layer/latent.h"
#include "regard/layer/multi_head.h"
#include "regard/layer/structured.h"
#include "tests/layer/support.h"

namespace regard::layer {
namespace {

using attention::Align;
using attention::Mask;
using testing::distance;
using testing::Golden;
using testing::set_parameter;

constexpr double kTolerance = 1e-5;  // float32

at::Tensor part(const at::Tensor& stacked, int64_t n) {
  return stacked.chunk(3, 0)[static_cast<size_t>(n)];
}

// Weights of a torch MultiheadAttention under `prefix`.
void load_heads(MultiHead& layer, const Golden& golden, const std::string& prefix) {
  const char* names[] = {"q", "k", "v"};
  for (int64_t n = 0; n < 3; ++n) {
    const std::string name = names[n];
    set_parameter(layer, name + ".weight",
                  golden.has(prefix + "in_proj_weight") ? part(golden.f32(prefix + "in_proj_weight"), n)
                                                        : golden.f32(prefix + name + "_proj_weight"));
    if (golden.has(prefix + "in_proj_bias"))
      set_parameter(layer, name + ".bias", part(golden.f32(prefix + "in_proj_bias"), n));
  }
  set_parameter(layer, "out.weight", golden.f32(prefix + "out_proj.weight"));
  if (golden.has(prefix + "out_proj.bias"))
    set_parameter(layer, "out.bias", golden.f32(prefix + "out_proj.bias"));
  if (!golden.has(prefix + "bias_k")) return;
  set_parameter(layer, "extra_key", golden.f32(prefix + "bias_k").flatten());
  set_parameter(layer, "extra_value", golden.f32(prefix + "bias_v").flatten());
}

at::Tensor leaf(const Golden& golden, const std::string& name) {
  return golden.f32("in." + name).requires_grad_();
}

void expect_gradient(const torch::nn::Module& layer, const std::string& name, const at::Tensor& want) {
  const at::Tensor got = layer.named_parameters()[name].grad();
  ASSERT_TRUE(got.defined()) << name;
  EXPECT_LE(distance(got, want), kTolerance) << name;
}

TEST(MultiHead, EqualsTorchOverOneText) {
  const testing::OneThread one_thread;
  for (const std::string name : {"mha_self", "mha_self_causal", "mha_no_bias", "mha_bias_kv_zero_attn"}) {
    const Golden golden("layers/" + name);
    const bool more = golden.has("w.bias_k");
    MultiHead layer(
        {.width = 12, .heads = 3, .bias = name != "mha_no_bias", .extra_key = more, .zero_key = more});
    load_heads(layer, golden, "w.");
    const at::Tensor x = leaf(golden, "query");
    const Mask mask = name == "mha_self_causal" ? Mask::causal(Align::top_left) : Mask();
    at::Tensor weights;
    const at::Tensor out = layer.forward(x, x, x, mask, {}, &weights);
    EXPECT_LE(distance(out, golden.f64("out.out")), kTolerance) << name;
    EXPECT_LE(distance(weights, golden.f64("out.weights")), kTolerance) << name;
    (out * golden.f32("dout.out")).sum().backward();
    EXPECT_LE(distance(x.grad(), golden.f64("gradin.query")), kTolerance) << name;
    const at::Tensor projections = golden.f64("gradw.in_proj_weight");
    expect_gradient(layer, "q.weight", part(projections, 0));
    expect_gradient(layer, "k.weight", part(projections, 1));
    expect_gradient(layer, "v.weight", part(projections, 2));
    expect_gradient(layer, "out.weight", golden.f64("gradw.out_proj.weight"));
    if (!more) continue;
    expect_gradient(layer, "extra_key", golden.f64("gradw.bias_k").flatten());
    expect_gradient(layer, "extra_value", golden.f64("gradw.bias_v").flatten());
  }
}

TEST(MultiHead, EqualsTorchBetweenTwoTextsOfOtherWidthsWithPadding) {
  const Golden golden("layers/mha_cross_kdim_vdim_padding");
  MultiHead layer({.width = 12, .heads = 3, .key_width = 10, .value_width = 14});
  load_heads(layer, golden, "w.");
  const at::Tensor query = leaf(golden, "query");
  const at::Tensor key = leaf(golden, "key");
  const at::Tensor value = leaf(golden, "value");
  autograd::AttentionExtras extras;
  extras.dense_mask = golden.ids("in.key_padding_true_is_blocked").eq(0).view({2, 1, 1, 9});
  at::Tensor weights;
  const at::Tensor out = layer.forward(query, key, value, Mask::dense(), extras, &weights);
  EXPECT_LE(distance(out, golden.f64("out.out")), kTolerance);
  EXPECT_LE(distance(weights, golden.f64("out.weights")), kTolerance);
  (out * golden.f32("dout.out")).sum().backward();
  EXPECT_LE(distance(query.grad(), golden.f64("gradin.query")), kTolerance);
  EXPECT_LE(distance(key.grad(), golden.f64("gradin.key")), kTolerance);
  EXPECT_LE(distance(value.grad(), golden.f64("gradin.value")), kTolerance);
  expect_gradient(layer, "k.weight", golden.f64("gradw.k_proj_weight"));
}

TEST(MultiHead, ExtraKeysStayVisibleUnderAMask) {
  at::manual_seed(1);
  MultiHead layer({.width = 8, .heads = 2, .extra_key = true});
  const at::Tensor x = at::randn({2, 5, 8});
  autograd::AttentionExtras extras;
  extras.key_lengths = at::tensor(std::vector<int64_t>{5, 2});
  at::Tensor weights;
  layer.forward(x, x, x, Mask::causal(Align::top_left) & Mask::key_lengths(), extras, &weights);
  EXPECT_EQ(weights.size(-1), 6);
  EXPECT_GT(weights.select(-1, 5).min().item<double>(), 0.0);
  EXPECT_EQ(weights[0][0][0][1].item<double>(), 0.0);  // causal
  EXPECT_EQ(weights[1][0][4][2].item<double>(), 0.0);  // padding
}

// One head of queries with its key head repeated: GQA with as many key heads is MHA, with one it is MQA.
TEST(MultiHead, GroupsShareKeysAsIfTheyWereRepeated) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({2, 7, 8});
  for (const int64_t kv_heads : {1, 2}) {
    MultiHead grouped({.width = 8, .heads = 4, .kv_heads = kv_heads});
    MultiHead full({.width = 8, .heads = 4});
    const auto parameters = grouped.named_parameters();
    for (const std::string name : {"q.weight", "q.bias", "out.weight", "out.bias"})
      set_parameter(full, name, parameters[name].detach());
    for (const std::string name : {"k.weight", "v.weight", "k.bias", "v.bias"}) {
      const at::Tensor own = parameters[name].detach();
      set_parameter(full, name,
                    own.unflatten(0, {kv_heads, 2}).repeat_interleave(4 / kv_heads, 0).flatten(0, 1));
    }
    EXPECT_LE(distance(grouped.forward(x), full.forward(x).detach()), 1e-6);
  }
  EXPECT_THROW(MultiHead({.width = 8, .heads = 3}), std::invalid_argument);
}

// Concatenated heads times W_O are the sum of heads times their rows of it.
TEST(MultiHead, IsTheSumOfItsHeads) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({1, 6, 8});
  const MultiHead layer({.width = 8, .heads = 2, .bias = false});
  const auto w = layer.named_parameters();
  at::Tensor sum = at::zeros({1, 6, 8});
  for (int64_t h = 0; h < 2; ++h) {
    const auto of = [&](const char* name) { return at::matmul(x, w[name].narrow(0, 4 * h, 4).t()); };
    const at::Tensor a = at::softmax(at::matmul(of("q.weight"), of("k.weight").transpose(1, 2)) / 2.0, -1);
    sum = sum + at::matmul(at::matmul(a, of("v.weight")), w["out.weight"].narrow(1, 4 * h, 4).t());
  }
  EXPECT_LE(distance(layer.forward(x), sum.detach()), 1e-5);
}

// Linear layers of golden weights, as a block takes them.
std::shared_ptr<Linear> linear(const Golden& golden, const std::string& name) {
  const at::Tensor bias =
      golden.has("w." + name + ".bias") ? golden.f32("w." + name + ".bias").requires_grad_() : at::Tensor();
  return std::make_shared<Linear>(Weight(golden.f32("w." + name + ".weight").requires_grad_()), bias);
}

std::shared_ptr<Linear> stacked(const Golden& golden, const std::string& prefix, int64_t n) {
  return std::make_shared<Linear>(
      Weight(part(golden.f32(prefix + "in_proj_weight"), n).clone().requires_grad_()),
      part(golden.f32(prefix + "in_proj_bias"), n).clone().requires_grad_());
}

std::shared_ptr<Norm> layer_norm(const Golden& golden, const std::string& name) {
  return std::make_shared<Norm>(kernel::NormForm::layer, 1e-5,
                                golden.f32("w." + name + ".weight").requires_grad_(),
                                golden.f32("w." + name + ".bias").requires_grad_());
}

TEST(Block, EqualsTorchsEncoderLayer) {
  const testing::OneThread one_thread;
  for (const bool pre : {false, true}) {
    const Golden golden(pre ? "layers/encoder_layer_pre_gelu" : "layers/encoder_layer_post_relu");
    const auto attention = std::make_shared<Attention>(
        AttentionOptions{.heads = 3, .kv_heads = 3, .head_size = 4},
        AttentionParts{stacked(golden, "w.self_attn.", 0), stacked(golden, "w.self_attn.", 1),
                       stacked(golden, "w.self_attn.", 2), linear(golden, "self_attn.out_proj"), nullptr,
                       nullptr, nullptr});
    const Block block(pre ? NormPlace::pre : NormPlace::post, attention, layer_norm(golden, "norm1"),
                      std::make_shared<FeedForward>(pre ? Activation::gelu : Activation::relu,
                                                    linear(golden, "linear1"), linear(golden, "linear2")),
                      layer_norm(golden, "norm2"));
    const at::Tensor x = leaf(golden, "x");
    Context context;
    const Pass pass{.context = &context,
                    .rope = nullptr,
                    .key_lengths = golden.ids("in.key_padding_true_is_blocked").eq(0).sum(1)};
    const at::Tensor out = block.forward(x, 0, pass);
    EXPECT_LE(distance(out, golden.f64("out.out")), kTolerance);
    (out * golden.f32("dout.out")).sum().backward();
    EXPECT_LE(distance(x.grad(), golden.f64("gradin.x")), kTolerance);
    expect_gradient(block, "feed_forward.up.weight", golden.f64("gradw.linear1.weight"));
    expect_gradient(block, "attention_norm.weight", golden.f64("gradw.norm1.weight"));
    expect_gradient(block, "feed_forward_norm.bias", golden.f64("gradw.norm2.bias"));
    expect_gradient(block, "attention.q.weight", part(golden.f64("gradw.self_attn.in_proj_weight"), 0));
  }
}

TEST(MultiHead, MakesTorchsDecoderLayer) {
  const testing::OneThread one_thread;
  const Golden golden("layers/decoder_layer_causal");
  MultiHead self({.width = 12, .heads = 3});
  MultiHead cross({.width = 12, .heads = 3});
  load_heads(self, golden, "w.self_attn.");
  load_heads(cross, golden, "w.multihead_attn.");
  const FeedForward feed(Activation::relu, linear(golden, "linear1"), linear(golden, "linear2"));
  const at::Tensor x = leaf(golden, "tgt");
  const at::Tensor memory = leaf(golden, "memory");
  at::Tensor y = layer_norm(golden, "norm1")->forward(x + self.forward(x, Mask::causal(Align::top_left)));
  y = layer_norm(golden, "norm2")->forward(y + cross.forward(y, memory, memory));
  y = layer_norm(golden, "norm3")->forward(y + feed.forward(y));
  EXPECT_LE(distance(y, golden.f64("out.out")), kTolerance);
  (y * golden.f32("dout.out")).sum().backward();
  EXPECT_LE(distance(x.grad(), golden.f64("gradin.tgt")), kTolerance);
  EXPECT_LE(distance(memory.grad(), golden.f64("gradin.memory")), kTolerance);
  expect_gradient(cross, "v.weight", part(golden.f64("gradw.multihead_attn.in_proj_weight"), 2));
}

// Four norms of (1 + weight), norms of queries and keys before the rotation, a scale of its own, a window.
TEST(Attention, EqualsGemma3) {
  const testing::OneThread one_thread;
  for (const bool sliding : {true, false}) {
    const Golden golden(sliding ? "layers/gemma3_sliding_attention" : "layers/gemma3_full_attention");
    const auto rms = [&](const std::string& name, double factor = 1) {
      return std::make_shared<Norm>(kernel::NormForm::rms, 1e-6,
                                    ((golden.f32("w." + name + ".weight") + 1) * factor).requires_grad_());
    };
    // The layer divides by sqrt(6), Gemma by sqrt(10): the rest goes into the queries' norm.
    const double rest = std::sqrt(6.0 / 10.0);
    const Attention attention(
        {.heads = 4, .kv_heads = 2, .head_size = 6, .causal = true, .window = sliding ? 4 : 0},
        {linear(golden, "self_attn.q_proj"), linear(golden, "self_attn.k_proj"),
         linear(golden, "self_attn.v_proj"), linear(golden, "self_attn.o_proj"), nullptr,
         rms("self_attn.q_norm", rest), rms("self_attn.k_norm")});
    const FeedForward feed(Activation::gelu_tanh, linear(golden, "mlp.up_proj"),
                           linear(golden, "mlp.down_proj"), linear(golden, "mlp.gate_proj"));
    const RopeTable table = Rope(6, sliding ? 10000 : 1000000).table(0, 11);
    EXPECT_LE(distance(table.cos.squeeze(1), golden.f64("in.cos").narrow(1, 0, 3)), 1e-6);
    Context context;
    const Pass pass{.context = &context, .rope = &table, .key_lengths = {}};
    const at::Tensor x = leaf(golden, "x");
    const at::Tensor attended =
        x + rms("post_attention_layernorm")
                ->forward(attention.forward(rms("input_layernorm")->forward(x), 0, pass));
    const at::Tensor out =
        attended + rms("post_feedforward_layernorm")
                       ->forward(feed.forward(rms("pre_feedforward_layernorm")->forward(attended)));
    EXPECT_LE(distance(out, golden.f64("out.out")), kTolerance);
    (out * golden.f32("dout.out")).sum().backward();
    EXPECT_LE(distance(x.grad(), golden.f64("gradin.x")), kTolerance);
    expect_gradient(attention, "k.weight", golden.f64("gradw.self_attn.k_proj.weight"));
    expect_gradient(attention, "k_norm.weight", golden.f64("gradw.self_attn.k_norm.weight"));
    const at::Tensor q_norm = attention.named_parameters()["q_norm.weight"].grad() * rest;
    EXPECT_LE(distance(q_norm, golden.f64("gradw.self_attn.q_norm.weight")), kTolerance);
  }
}

TEST(LatentAttention, EqualsDeepSeekByBothPaths) {
  const testing::OneThread one_thread;
  for (const std::string name : {"mla_deepseek_v2_noqlora", "mla_deepseek_v2_qlora", "mla_deepseek_v3_half",
                                 "mla_deepseek_v3_interleave"}) {
    const Golden golden("mla/" + name);
    const bool direct = golden.has("w.q_proj.weight");
    LatentAttention layer(
        {.width = 24,
         .heads = 3,
         .query_rank = direct ? 0 : 10,
         .rank = 8,
         .nope = 6,
         .rope = 4,
         .value = 5,
         .pairs = name == "mla_deepseek_v3_half" ? RopePairs::halves : RopePairs::neighbours});
    set_parameter(layer, "query_up.weight", golden.f32(direct ? "w.q_proj.weight" : "w.q_b_proj.weight"));
    if (!direct) {
      set_parameter(layer, "query_down.weight", golden.f32("w.q_a_proj.weight"));
      set_parameter(layer, "query_norm.weight", golden.f32("w.q_a_layernorm.weight"));
    }
    set_parameter(layer, "down.weight", golden.f32("w.kv_a_proj_with_mqa.weight"));
    set_parameter(layer, "norm.weight", golden.f32("w.kv_a_layernorm.weight"));
    set_parameter(layer, "up.weight", golden.f32("w.kv_b_proj.weight"));
    set_parameter(layer, "out.weight", golden.f32("w.o_proj.weight"));
    const Rope rope(4, 10000);
    for (const auto path : {LatentAttention::Path::naive, LatentAttention::Path::absorbed}) {
      layer.zero_grad();
      const at::Tensor x = leaf(golden, "x");
      const at::Tensor out = layer.forward(x, rope.table(0, 7), path);
      EXPECT_LE(distance(out, golden.f64("out.out")), kTolerance) << name;
      (out * golden.f32("dout.out")).sum().backward();
      EXPECT_LE(distance(x.grad(), golden.f64("gradin.x")), kTolerance) << name;
      expect_gradient(layer, "up.weight", golden.f64("gradw.kv_b_proj.weight"));
      expect_gradient(layer, "down.weight", golden.f64("gradw.kv_a_proj_with_mqa.weight"));
      expect_gradient(layer, "norm.weight", golden.f64("gradw.kv_a_layernorm.weight"));
    }
    // From a cache at any split.
    const at::Tensor x = golden.f32("in.x");
    for (const int64_t split : {1, 3, 6}) {
      at::Tensor latents;
      const at::Tensor first =
          layer.forward(x.narrow(1, 0, split), rope.table(0, split), LatentAttention::Path::naive, &latents);
      const at::Tensor second = layer.forward(x.narrow(1, split, 7 - split), rope.table(split, 7 - split),
                                              LatentAttention::Path::absorbed, &latents);
      EXPECT_EQ(latents.size(1), 7);
      EXPECT_LE(distance(at::cat({first, second}, 1), golden.f64("out.out")), kTolerance) << split;
    }
  }
}

struct NystromCase {
  Golden golden;
  Nystrom layer;

  explicit NystromCase(const std::string& name)
      : golden("layers/" + name),
        layer({.landmarks = 4, .iterations = 6, .shared_start = true}, 16, 3, 5,
              golden.has("w.res_conv.weight") ? 3 : 0) {
    set_parameter(layer, "qkv.weight", golden.f32("w.to_qkv.weight"));
    set_parameter(layer, "out.weight", golden.f32("w.to_out.0.weight"));
    set_parameter(layer, "out.bias", golden.f32("w.to_out.0.bias"));
    if (golden.has("w.res_conv.weight")) set_parameter(layer, "convolution", golden.f32("w.res_conv.weight"));
  }
};

TEST(Nystrom, EqualsThePublicPort) {
  const testing::OneThread one_thread;
  for (const std::string name : {"nystrom_even", "nystrom_pad_front", "nystrom_no_residual"}) {
    const NystromCase c(name);
    const at::Tensor x = leaf(c.golden, "x");
    const at::Tensor out = c.layer.forward(x);
    EXPECT_LE(distance(out, c.golden.f64("out.out")), kTolerance) << name;
    (out * c.golden.f32("dout.out")).sum().backward();
    EXPECT_LE(distance(x.grad(), c.golden.f64("gradin.x")), 3 * kTolerance) << name;
    expect_gradient(c.layer, "out.weight", c.golden.f64("gradw.to_out.0.weight"));
    for (int64_t b = 0; b < 2; ++b)
      EXPECT_LE(distance(c.layer.forward(x.narrow(0, b, 1)), c.golden.f64("out.one_by_one").narrow(0, b, 1)),
                kTolerance);
  }
}

// With all tokens real but the padding. Where a whole landmark is masked the port spreads its row over
// everything; here it takes no part.
TEST(Nystrom, MaskedPaddingEqualsThePublicPort) {
  const NystromCase c("nystrom_masked");
  const at::Tensor x = c.golden.f32("in.x").narrow(0, 0, 1);
  const at::Tensor mask = c.golden.ids("in.mask").narrow(0, 0, 1);
  EXPECT_TRUE(mask.all().item<bool>());
  EXPECT_LE(distance(c.layer.forward(x, mask), c.golden.f64("out.one_by_one").narrow(0, 0, 1)), kTolerance);
}

}  // namespace
}  // namespace regard::layer
