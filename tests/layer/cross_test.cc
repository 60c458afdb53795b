// What decoders that read another text need of the layers: attention over it, caches whose rows move.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "regard/layer/attention.h"
#include "regard/layer/block.h"
#include "regard/layer/kv_cache.h"
#include "tests/layer/support.h"

namespace regard::layer {
namespace {

using testing::distance;
using testing::Golden;

std::shared_ptr<Linear> rows_of(const at::Tensor& weight, const at::Tensor& bias, int64_t n, int64_t of) {
  const auto part = [&](const at::Tensor& x) {
    return x.chunk(of, 0)[static_cast<size_t>(n)].clone().requires_grad_();
  };
  return std::make_shared<Linear>(Weight(part(weight)), part(bias));
}

std::shared_ptr<Linear> linear(const Golden& golden, const std::string& name) {
  return rows_of(golden.f32("w." + name + ".weight"), golden.f32("w." + name + ".bias"), 0, 1);
}

std::shared_ptr<Attention> heads(const Golden& golden, const std::string& name, bool causal,
                                 double dropout = 0) {
  const at::Tensor weight = golden.f32("w." + name + ".in_proj_weight");
  const at::Tensor bias = golden.f32("w." + name + ".in_proj_bias");
  AttentionParts parts;
  parts.q = rows_of(weight, bias, 0, 3);
  parts.k = rows_of(weight, bias, 1, 3);
  parts.v = rows_of(weight, bias, 2, 3);
  parts.out = linear(golden, name + ".out_proj");
  const AttentionOptions options{
      .heads = 3, .kv_heads = 3, .head_size = 4, .causal = causal, .window = 0, .dropout = dropout};
  return std::make_shared<Attention>(options, std::move(parts));
}

std::shared_ptr<Norm> norm(const Golden& golden, const std::string& name) {
  return std::make_shared<Norm>(kernel::NormForm::layer, 1e-5,
                                golden.f32("w." + name + ".weight").requires_grad_(),
                                golden.f32("w." + name + ".bias").requires_grad_());
}

Block decoder_block(const Golden& golden, double dropout = 0) {
  return {NormPlace::post,
          heads(golden, "self_attn", true, dropout),
          norm(golden, "norm1"),
          std::make_shared<FeedForward>(Activation::relu, linear(golden, "linear1"),
                                        linear(golden, "linear2"), nullptr, dropout),
          norm(golden, "norm3"),
          {heads(golden, "multihead_attn", false, dropout), norm(golden, "norm2")},
          dropout};
}

TEST(Block, EqualsTorchsDecoderLayer) {
  const testing::OneThread one_thread;
  const Golden golden("layers/decoder_layer_causal");
  const Block block = decoder_block(golden);
  const at::Tensor x = golden.f32("in.tgt").requires_grad_();
  Context context;
  Memory memory;
  memory.states = golden.f32("in.memory").requires_grad_();
  const Pass pass{.context = &context, .rope = nullptr, .key_lengths = {}, .memory = &memory};
  const at::Tensor y = block.forward(x, 0, pass);
  EXPECT_LE(distance(y, golden.f64("out.out")), 1e-5);
  (y * golden.f32("dout.out")).sum().backward();
  EXPECT_LE(distance(x.grad(), golden.f64("gradin.tgt")), 1e-5);
  EXPECT_LE(distance(memory.states.grad(), golden.f64("gradin.memory")), 1e-5);
  const auto gradient = [&](const std::string& name) { return block.named_parameters()[name].grad(); };
  const at::Tensor stacked = golden.f64("gradw.multihead_attn.in_proj_weight");
  EXPECT_LE(distance(gradient("cross.q.weight"), stacked.chunk(3, 0)[0]), 1e-5);
  EXPECT_LE(distance(gradient("cross.v.weight"), stacked.chunk(3, 0)[2]), 1e-5);
  EXPECT_LE(distance(gradient("cross_norm.weight"), golden.f64("gradw.norm2.weight")), 1e-5);
  EXPECT_LE(distance(gradient("feed_forward.up.bias"), golden.f64("gradw.linear1.bias")), 1e-5);
}

// Four calls of dropout in a layer with all of them: weights, stream, and twice more; the same numbers again
// where the count is set back, gradients included.
TEST(Block, APassMadeAgainDropsTheSame) {
  const Golden golden("layers/decoder_layer_causal");
  const Block block = decoder_block(golden, 0.3);
  Context context;
  context.training = true;
  context.dropout_seed = 3;
  Memory memory;
  memory.states = golden.f32("in.memory");
  const Pass pass{.context = &context, .rope = nullptr, .key_lengths = {}, .memory = &memory};
  const auto run = [&] {
    const at::Tensor x = golden.f32("in.tgt").requires_grad_();
    const at::Tensor y = block.forward(x, 0, pass);
    y.sum().backward();
    return std::pair(y.detach(), x.grad());
  };
  const auto [first, first_grad] = run();
  EXPECT_EQ(context.dropout_calls, 6U);  // both weights, inside the feed-forward, three sums
  const auto [second, second_grad] = run();
  EXPECT_FALSE(first.equal(second));
  context.dropout_calls = 0;
  const auto [again, again_grad] = run();
  EXPECT_TRUE(first.equal(again));
  EXPECT_TRUE(first_grad.equal(again_grad));
  context.training = false;
  const auto [quiet, quiet_grad] = run();
  EXPECT_LE(distance(quiet, golden.f64("out.out")), 1e-5);
}

KvCache::Shape shape(int64_t batch, int64_t capacity) {
  KvCache::Shape shape;
  shape.layers = 2;
  shape.batch = batch;
  shape.kv_heads = 3;
  shape.key_size = 4;
  shape.value_size = 5;
  shape.capacity = capacity;
  return shape;
}

TEST(KvCache, SelectedRowsGoOnFromWhatTheyWere) {
  at::manual_seed(8);
  // 150 positions: over page boundaries; more rows than there was room for, then fewer.
  KvCache cache(shape(2, 150));
  at::Tensor k = at::empty({2, 3, 0, 4}), v = at::empty({2, 3, 0, 5});
  const std::vector<std::vector<int64_t>> moves = {{0, 1}, {1, 0, 1, 1, 0}, {4, 4, 0}, {2, 1, 0, 0}, {3}};
  for (const std::vector<int64_t>& move : moves) {
    cache.select(move);
    const at::Tensor rows = at::tensor(move, at::kLong);
    k = k.index_select(0, rows);
    v = v.index_select(0, rows);
    EXPECT_EQ(cache.batch(), static_cast<int64_t>(move.size()));
    for (const int64_t count : {1, 29}) {
      const at::Tensor more_k = at::randn({rows.size(0), 3, count, 4});
      const at::Tensor more_v = at::randn({rows.size(0), 3, count, 5});
      for (int64_t layer = 0; layer < 2; ++layer) cache.append(layer, more_k, more_v + layer);
      k = at::cat({k, more_k}, 2);
      v = at::cat({v, more_v}, 2);
    }
    EXPECT_TRUE(cache.keys(0).k.equal(k));
    EXPECT_TRUE(cache.keys(0).v.equal(v));
    EXPECT_EQ(cache.length(), k.size(2));
  }
  EXPECT_EQ(cache.length(), 150);
  EXPECT_THROW(cache.select(std::vector<int64_t>{1}), std::invalid_argument);
  EXPECT_THROW(cache.select(std::vector<int64_t>{}), std::invalid_argument);
}

TEST(KvCache, RowsShareWhatTheyHaveInCommon) {
  KvCache cache(shape(1, 200));
  cache.append(0, at::randn({1, 3, 128, 4}), at::randn({1, 3, 128, 5}));
  cache.append(1, at::randn({1, 3, 128, 4}), at::randn({1, 3, 128, 5}));
  cache.select(std::vector<int64_t>{0, 0, 0, 0});
  const int64_t shared = cache.bytes();
  cache.select(std::vector<int64_t>{3, 1, 0, 2});
  EXPECT_EQ(cache.bytes(), shared);
  EXPECT_EQ(shared, 2 * 2 * 64 * 3 * 9 * 4);  // layers, pages, positions, heads, features, floats
}

TEST(KvCache, TextsOfSeveralLengthsAreLookedAt) {
  at::manual_seed(9);
  const at::Tensor k = at::randn({3, 3, 70, 4}), v = at::randn({3, 3, 70, 5});
  const std::vector<int64_t> lengths = {70, 1, 66};
  KvCache cache(shape(3, 70));
  for (int64_t layer = 0; layer < 2; ++layer) cache.append(layer, k, v);
  cache.truncate(lengths);
  const at::Tensor q = at::randn({3, 6, 1, 4});
  at::Tensor lse;
  const at::Tensor got = cache.attend(1, {}, q, {}, &lse);
  attention::Spec spec;
  spec.mask = attention::Mask::key_lengths();
  autograd::AttentionExtras extras;
  extras.key_lengths = at::tensor(lengths, at::kLong);
  at::Tensor want_lse;
  const at::Tensor want = autograd::attention(spec, q, k, v, extras, &want_lse);
  EXPECT_LE(distance(got, want), 1e-5);
  const at::Tensor weights = cache.weights(1, {}, q, lse);
  ASSERT_EQ(weights.sizes(), (std::vector<int64_t>{3, 6, 70}));
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t h = 0; h < 6; ++h) {
      const at::Tensor row = autograd::weights(spec, q, k, want_lse, b, h, 0, 1, 0, 70, extras)[0];
      EXPECT_LE((weights[b][h] - row).abs().max().item<double>(), 1e-6);
    }
    if (lengths[static_cast<size_t>(b)] < 70) {
      EXPECT_EQ(weights[b]
                    .narrow(1, lengths[static_cast<size_t>(b)], 70 - lengths[static_cast<size_t>(b)])
                    .abs()
                    .max()
                    .item<double>(),
                0.0);
    }
  }
  EXPECT_THROW(cache.truncate(std::vector<int64_t>{1, 1}), std::invalid_argument);
}

}  // namespace
}  // namespace regard::layer
