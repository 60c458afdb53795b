#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "regard/autograd/attention.h"
#include "regard/layer/attention.h"
#include "regard/layer/basic.h"
#include "regard/layer/kv_cache.h"
#include "regard/layer/rope.h"
#include "regard/layer/weight.h"

namespace regard::layer {
namespace {

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// A weight whose rows are copied out of `dense` on use, as quantised ones are expanded.
Weight expanded(const at::Tensor& dense) {
  return Weight(dense.size(0), dense.size(1), [dense](int64_t begin, int64_t end, float* out) {
    const at::Tensor rows = dense.narrow(0, begin, end - begin).contiguous();
    std::copy_n(rows.const_data_ptr<float>(), rows.numel(), out);
  });
}

TEST(Weight, ExpandedRowsMultiplyLikeDenseOnes) {
  at::manual_seed(1);
  for (const auto& [rows, columns] : {std::pair{1, 1}, {7, 33}, {100, 64}, {3000, 1500}}) {
    const at::Tensor dense = at::randn({rows, columns});
    const at::Tensor bias = at::randn({rows});
    const Weight weight = expanded(dense);
    for (const int64_t inputs : {1, 2, 8, 9, 40}) {
      const at::Tensor x = at::randn({1, inputs, columns});
      const at::Tensor want = Weight(dense).linear(x, bias);
      EXPECT_EQ(weight.linear(x, bias).sizes(), want.sizes());
      EXPECT_LE(difference(weight.linear(x, bias), want), 1e-6 * columns + 1e-5) << rows << " " << inputs;
    }
  }
}

Weight quantized(const at::Tensor& dense) {
  auto matrix = std::make_shared<kernel::QuantizedMatrix>(kernel::kInt8Format, dense.size(0), dense.size(1));
  for (int64_t r = 0; r < dense.size(0); ++r)
    matrix->round_row(r, dense.const_data_ptr<float>() + r * dense.size(1));
  return Weight(std::move(matrix));
}

TEST(Weight, QuantizedOnesMultiplyLikeTheirRowsUpToTheRoundingOfInputs) {
  at::manual_seed(2);
  for (const auto& [rows, columns] : {std::pair{1, 1}, {7, 33}, {100, 64}, {300, 500}}) {
    const Weight weight = quantized(at::randn({rows, columns}));
    EXPECT_FALSE(weight.dense().defined());
    const at::Tensor w = weight.gather(at::arange(rows, at::kLong));
    const at::Tensor bias = at::randn({rows});
    for (const int64_t inputs : {1, 2, 40}) {
      const at::Tensor x = at::rand({1, inputs, columns}) * 2 - 1;
      const at::Tensor want = at::linear(x, w, bias);
      EXPECT_EQ(weight.linear(x, bias).sizes(), want.sizes());
      // Half a step of inputs below 1, times the weights.
      const double bound = w.abs().sum(1).max().item<double>() / 254 + 1e-4;
      EXPECT_LE(difference(weight.linear(x, bias), want), bound) << rows << " " << inputs;
    }
  }
  EXPECT_THROW(quantized(at::randn({4, 3})).linear(at::randn({2, 3}).requires_grad_()),
               std::invalid_argument);
  EXPECT_THROW(Weight(std::shared_ptr<const kernel::QuantizedMatrix>()), std::invalid_argument);
}

TEST(Weight, GatherTakesRowsAndRefusesOthers) {
  const at::Tensor dense = at::randn({5, 3});
  const at::Tensor ids = at::tensor(std::vector<int64_t>{4, 0, 4, 2}).view({2, 2});
  for (const Weight& weight : {Weight(dense), expanded(dense)}) {
    EXPECT_TRUE(at::equal(weight.gather(ids), dense.index_select(0, ids.view({-1})).view({2, 2, 3})));
    EXPECT_THROW(weight.gather(at::full({1}, 5, at::kLong)), std::invalid_argument);
    EXPECT_THROW(weight.gather(at::full({1}, -1, at::kLong)), std::invalid_argument);
  }
}

TEST(Weight, ExpandedRowsRefuseGradients) {
  const at::Tensor x = at::randn({2, 3}).requires_grad_();
  EXPECT_THROW(expanded(at::randn({4, 3})).linear(x), std::invalid_argument);
  EXPECT_TRUE(Weight(at::randn({4, 3})).linear(x).requires_grad());
  EXPECT_THROW(Weight(at::randn({4, 3})).linear(at::randn({2, 4})), std::invalid_argument);
}

TEST(Norm, EqualsItsFormula) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({3, 4, 16}) * 5 + 2, weight = at::randn({16}), bias = at::randn({16});
  const at::Tensor mean = x.mean(-1, true);
  const at::Tensor variance = (x - mean).square().mean(-1, true);
  EXPECT_LE(difference(Norm(kernel::NormForm::layer, 1e-5, weight, bias).forward(x),
                       (x - mean) / (variance + 1e-5).sqrt() * weight + bias),
            1e-5);
  EXPECT_LE(difference(Norm(kernel::NormForm::rms, 1e-5, weight).forward(x),
                       x / (x.square().mean(-1, true) + 1e-5).sqrt() * weight),
            1e-5);
}

TEST(FeedForward, GatedAndPlainEqualTheirFormulas) {
  at::manual_seed(3);
  const at::Tensor up = at::randn({6, 4}), down = at::randn({4, 6}), gate = at::randn({6, 4}),
                   x = at::randn({2, 4});
  const auto linear = [](const at::Tensor& w) { return std::make_shared<Linear>(Weight(w)); };
  const FeedForward plain(Activation::gelu, linear(up), linear(down));
  const at::Tensor hidden = x.mm(up.t());
  EXPECT_LE(
      difference(plain.forward(x), (hidden * 0.5 * (1 + at::erf(hidden / std::sqrt(2.0)))).mm(down.t())),
      1e-5);
  const FeedForward gated(Activation::silu, linear(up), linear(down), linear(gate));
  const at::Tensor g = x.mm(gate.t());
  EXPECT_LE(difference(gated.forward(x), (g * at::sigmoid(g) * hidden).mm(down.t())), 1e-5);
  const FeedForward together(Activation::silu, FeedForward::GateUp{linear(at::cat({gate, up}))},
                             linear(down));
  EXPECT_LE(difference(together.forward(x), gated.forward(x)), 1e-5);
  EXPECT_LE(difference(together.forward(x.clone().requires_grad_()), gated.forward(x)), 1e-5);
}

TEST(Rope, ScoresDependOnTheDistanceAlone) {
  at::manual_seed(4);
  const Rope rope(16, 10000.0);
  const at::Tensor q = at::randn({1, 1, 1, 16}), k = at::randn({1, 1, 1, 16});
  const auto score = [&](int64_t i, int64_t j) {
    return (rotate(q, rope.table(i, 1)) * rotate(k, rope.table(j, 1))).sum().item<double>();
  };
  EXPECT_NEAR(score(7, 3), score(104, 100), 1e-4);
  EXPECT_NE(score(7, 3), score(7, 4));
  EXPECT_TRUE(at::equal(rotate(q, rope.table(0, 1)), q));
  EXPECT_NEAR(rotate(q, rope.table(1234, 1)).norm().item<double>(), q.norm().item<double>(), 1e-5);
}

TEST(Rope, Llama31ScalingKeepsFastAndDividesSlowFrequencies) {
  RopeScaling scaling{.kind = RopeScaling::Kind::llama3,
                      .factor = 8,
                      .low_frequency_factor = 1,
                      .high_frequency_factor = 4,
                      .original_length = 8192};
  const Rope plain(128, 500000.0), scaled(128, 500000.0, scaling);
  int kept = 0, divided = 0, blended = 0;
  for (size_t i = 0; i < 64; ++i) {
    const double ratio = plain.frequencies()[i] / scaled.frequencies()[i];
    ++(ratio == 1 ? kept : std::abs(ratio - 8) < 1e-9 ? divided : blended);
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(blended, 6);
  EXPECT_EQ(divided, 29);
}

TEST(Rope, OddSizesAndBadBasesAreRefused) {
  EXPECT_THROW(Rope(7, 10000.0), std::invalid_argument);
  EXPECT_THROW(Rope(8, 0.0), std::invalid_argument);
  EXPECT_THROW(Rope(8, NAN), std::invalid_argument);
}

KvCache::Shape small(int64_t capacity, std::vector<int64_t> windows = {}) {
  KvCache::Shape shape;
  shape.layers = 2;
  shape.kv_heads = 3;
  shape.key_size = 4;
  shape.value_size = 5;
  shape.capacity = capacity;
  shape.windows = std::move(windows);
  return shape;
}

TEST(KvCache, HoldsEveryKeySoFar) {
  at::manual_seed(5);
  const at::Tensor k = at::randn({2, 3, 700, 4}), v = at::randn({2, 3, 700, 5});
  KvCache::Shape shape = small(700);
  shape.batch = 2;
  KvCache cache(shape);
  int64_t length = 0;
  for (const int64_t count : {1, 5, 300, 1, 393}) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      cache.append(layer, k.narrow(2, length, count), v.narrow(2, length, count));
      const KvCache::Keys all = cache.keys(layer);
      EXPECT_TRUE(at::equal(all.k, k.narrow(2, 0, length + count)));
      EXPECT_TRUE(at::equal(all.v, v.narrow(2, 0, length + count)));
    }
    length += count;
    EXPECT_EQ(cache.length(), length);
  }
  EXPECT_THROW(cache.append(0, k.narrow(2, 0, 1), v.narrow(2, 0, 1)), std::invalid_argument);
  const int64_t bytes = cache.bytes();
  EXPECT_EQ(bytes, 2 * 2 * 704 * 3 * 9 * 4);  // layers, texts, pages of 64 positions, heads, features, floats
  cache.clear();
  EXPECT_EQ(cache.length(), 0);
  EXPECT_EQ(cache.bytes(), 0);
  cache.append(0, k.narrow(2, 9, 2), v.narrow(2, 9, 2));
  EXPECT_TRUE(at::equal(cache.keys(0).k, k.narrow(2, 9, 2)));
}

// Rows of a text that come in any chunks, against one call over the whole text.
void expect_chunks_equal_one_call(int64_t window, kernel::CacheType type, double tolerance) {
  at::manual_seed(6);
  const int64_t length = 900;
  const at::Tensor q = at::randn({1, 6, length, 4});
  const at::Tensor k = at::randn({1, 3, length, 4}), v = at::randn({1, 3, length, 5});
  attention::Spec spec;
  spec.mask = attention::Mask::causal(attention::Align::bottom_right);
  if (window > 0) {
    spec.mask = spec.mask & attention::Mask::window(window - 1, 0, attention::Align::bottom_right);
  }
  at::Tensor want_lse;
  const at::Tensor want = autograd::attention(spec, q, k, v, {}, &want_lse);
  KvCache::Shape shape = small(length, {window, window});
  shape.type = type;
  KvCache cache(shape);
  EXPECT_EQ(cache.window(1), window);
  for (int64_t at = 0, step = 0; at < length; ++step) {
    const int64_t count = std::min<int64_t>(step % 5 == 4 ? 50 : 1 + step % 3, length - at);
    cache.append(1, k.narrow(2, at, count), v.narrow(2, at, count));
    at::Tensor lse;
    const at::Tensor got = cache.attend(1, {}, q.narrow(2, at, count), {}, &lse);
    ASSERT_LE((got - want.narrow(2, at, count)).abs().max().item<double>(), tolerance) << at;
    ASSERT_LE((lse - want_lse.narrow(2, at, count)).abs().max().item<double>(), tolerance) << at;
    at += count;
  }
  if (window > 0) {
    EXPECT_LE(cache.bytes(), (window + 50 + 2 * 64) * 3 * 9 * 4);
  }
}

TEST(KvCache, RowsInAnyChunksEqualOneCall) {
  expect_chunks_equal_one_call(0, kernel::CacheType::f32, 4e-6);
  expect_chunks_equal_one_call(0, kernel::CacheType::bf16, 3e-2);
  expect_chunks_equal_one_call(0, kernel::CacheType::f16, 4e-3);
  expect_chunks_equal_one_call(0, kernel::CacheType::i8, 4e-2);
}

TEST(KvCache, AWindowedLayerKeepsOnlyWhatLaterRowsSee) {
  expect_chunks_equal_one_call(16, kernel::CacheType::f32, 4e-6);
  expect_chunks_equal_one_call(100, kernel::CacheType::i8, 4e-2);
}

TEST(KvCache, RefusesOtherShapes) {
  KvCache cache(small(10));
  EXPECT_THROW(cache.append(0, at::zeros({1, 2, 1, 4}), at::zeros({1, 3, 1, 5})), std::invalid_argument);
  EXPECT_THROW(cache.append(2, at::zeros({1, 3, 1, 4}), at::zeros({1, 3, 1, 5})), std::invalid_argument);
  EXPECT_THROW(cache.append(0, at::zeros({1, 3, 1, 4}), at::zeros({1, 3, 2, 5})), std::invalid_argument);
  EXPECT_THROW(KvCache(small(0)), std::invalid_argument);
  EXPECT_THROW(KvCache(small(5, {1})), std::invalid_argument);
}

std::shared_ptr<Attention> random_attention(const AttentionOptions& options, int64_t width) {
  const auto linear = [&](int64_t out, int64_t in) {
    return std::make_shared<Linear>(Weight(at::randn({out, in}) / std::sqrt(static_cast<double>(in))),
                                    at::randn({out}));
  };
  const int64_t query = options.heads * options.head_size, key = options.kv_heads * options.head_size;
  AttentionParts parts;
  parts.q = linear(query, width);
  parts.k = linear(key, width);
  parts.v = linear(key, width);
  parts.out = linear(width, query);
  return std::make_shared<Attention>(options, std::move(parts));
}

TEST(Attention, NoLaterTokenReachesAnEarlierRow) {
  at::manual_seed(7);
  const auto attention = random_attention({.heads = 4, .kv_heads = 2, .head_size = 8, .causal = true}, 12);
  at::Tensor x = at::randn({1, 10, 12});
  Context context;
  const Pass pass{.context = &context, .rope = nullptr, .key_lengths = {}};
  const at::Tensor before = attention->forward(x, 0, pass);
  x = x.clone();
  x[0][7].fill_(NAN);
  const at::Tensor after = attention->forward(x, 0, pass);
  EXPECT_TRUE(at::equal(before.narrow(1, 0, 7), after.narrow(1, 0, 7)));
  EXPECT_TRUE(after.narrow(1, 7, 3).isnan().all().item<bool>());
}

TEST(Attention, ParametersAreListedLikeAnyModulesAndLearn) {
  at::manual_seed(8);
  const auto attention = random_attention({.heads = 2, .kv_heads = 1, .head_size = 4, .causal = true}, 6);
  EXPECT_EQ(attention->parameters().size(), 8U);
  for (at::Tensor& parameter : attention->parameters()) parameter.requires_grad_();
  Context context;
  const Pass pass{.context = &context, .rope = nullptr, .key_lengths = {}};
  attention->forward(at::randn({1, 5, 6}), 0, pass).square().sum().backward();
  for (const at::Tensor& parameter : attention->parameters()) {
    ASSERT_TRUE(parameter.grad().defined());
    // The key bias moves all logits of a row alike: its gradient is zero but for rounding.
    EXPECT_TRUE(at::isfinite(parameter.grad()).all().item<bool>());
  }
}

}  // namespace
}  // namespace regard::layer
