// The operator against libtorch's own attention in float64, forward and backward.
#include "regard/autograd/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace regard::autograd {
namespace {

using attention::Align;
using attention::Mask;
using attention::Spec;

double error(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  const at::Tensor reference = want.to(at::kDouble);
  const double scale = std::max(1e-3, reference.abs().max().item<double>());
  return (got.to(at::kDouble) - reference).abs().max().item<double>() / scale;
}

AttentionExtras bias_of(const at::Tensor& x) {
  AttentionExtras extras;
  extras.bias = x;
  return extras;
}
AttentionExtras sinks_of(const at::Tensor& x) {
  AttentionExtras extras;
  extras.sinks = x;
  return extras;
}
AttentionExtras dense_mask_of(const at::Tensor& x) {
  AttentionExtras extras;
  extras.dense_mask = x;
  return extras;
}
AttentionExtras key_lengths_of(const at::Tensor& x) {
  AttentionExtras extras;
  extras.key_lengths = x;
  return extras;
}

struct Case {
  std::string name;
  int64_t hq, hkv, lq, lk, dk, dv;
  Spec spec;
  // What the rows may see: [.., Lq, Lk] bool, or undefined.
  std::function<at::Tensor(int64_t lq, int64_t lk)> visible;
};

at::Tensor place(int64_t lq, int64_t lk, bool bottom) {
  return (at::arange(lq, at::kLong) + (bottom ? lk - lq : 0)).unsqueeze(1);
}

std::vector<Case> cases() {
  Spec plain, causal, top, window, scaled;
  causal.mask = Mask::causal(Align::bottom_right);
  top.mask = Mask::causal(Align::top_left);
  window.mask = Mask::causal(Align::bottom_right) & Mask::window(2, 0, Align::bottom_right);
  scaled.scale = 0.7F;
  const auto all = [](int64_t, int64_t) { return at::Tensor(); };
  return {
      {"plain", 2, 2, 5, 7, 8, 8, plain, all},
      {"sizes", 3, 3, 1, 9, 5, 3, plain, all},
      {"grouped", 6, 2, 6, 6, 16, 16, causal,
       [](int64_t lq, int64_t lk) { return at::arange(lk).unsqueeze(0) <= place(lq, lk, true); }},
      {"decode", 4, 1, 2, 11, 8, 4, causal,
       [](int64_t lq, int64_t lk) { return at::arange(lk).unsqueeze(0) <= place(lq, lk, true); }},
      {"top_left", 2, 2, 4, 7, 8, 8, top,
       [](int64_t lq, int64_t lk) { return at::arange(lk).unsqueeze(0) <= place(lq, lk, false); }},
      {"window", 2, 1, 9, 9, 8, 8, window,
       [](int64_t lq, int64_t lk) {
         const at::Tensor j = at::arange(lk).unsqueeze(0);
         const at::Tensor i = place(lq, lk, true);
         return at::logical_and(j <= i, j >= i - 2);
       }},
      {"scaled", 2, 2, 4, 4, 8, 8, scaled, all},
  };
}

struct Tensors {
  at::Tensor q, k, v, grad;
};

Tensors make(const Case& c) {
  at::manual_seed(1);
  return {at::randn({2, c.hq, c.lq, c.dk}), at::randn({2, c.hkv, c.lk, c.dk}),
          at::randn({2, c.hkv, c.lk, c.dv}), at::randn({2, c.hq, c.lq, c.dv})};
}

// libtorch's, in float64; keys and values repeated per query head.
at::Tensor reference(const Case& c, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& bias = {}) {
  const int64_t group = c.hq / c.hkv;
  at::Tensor mask = c.visible(c.lq, c.lk);
  std::optional<at::Tensor> extra;
  if (bias.defined()) {
    extra = mask.defined() ? bias.masked_fill(mask.logical_not(), -INFINITY) : bias;
  } else if (mask.defined()) {
    extra = mask;
  }
  return at::scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
                                          extra, 0.0, false,
                                          c.spec.scale ? std::optional<double>(*c.spec.scale) : std::nullopt);
}

TEST(Attention, ForwardEqualsLibtorch) {
  for (const Case& c : cases()) {
    const Tensors t = make(c);
    at::Tensor lse;
    const at::Tensor out = attention(c.spec, t.q, t.k, t.v, {}, &lse);
    EXPECT_LE(error(out, reference(c, t.q.to(at::kDouble), t.k.to(at::kDouble), t.v.to(at::kDouble))), 4e-6)
        << c.name;
    EXPECT_EQ(lse.sizes(), at::IntArrayRef({2, c.hq, c.lq}));
  }
}

TEST(Attention, GradientsEqualLibtorchs) {
  for (const Case& c : cases()) {
    const Tensors t = make(c);
    const at::Tensor bias = at::randn({1, c.hq, c.lq, c.lk});
    std::vector<at::Tensor> ours = {t.q.clone(), t.k.clone(), t.v.clone(), bias.clone()};
    std::vector<at::Tensor> theirs;
    for (const at::Tensor& x : ours) theirs.push_back(x.to(at::kDouble));
    for (at::Tensor& x : ours) x.requires_grad_();
    for (at::Tensor& x : theirs) x.requires_grad_();
    const at::Tensor out = attention(c.spec, ours[0], ours[1], ours[2], bias_of(ours[3]));
    const at::Tensor want = reference(c, theirs[0], theirs[1], theirs[2], theirs[3]);
    EXPECT_LE(error(out, want), 4e-6) << c.name;
    const auto got_gradients = torch::autograd::grad({out}, ours, {t.grad});
    const auto want_gradients = torch::autograd::grad({want}, theirs, {t.grad.to(at::kDouble)});
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_LE(error(got_gradients[i], want_gradients[i]), 1e-5) << c.name << " input " << i;
    }
  }
}

TEST(Attention, GradientsOfLseAndSinksEqualTheFormula) {
  at::manual_seed(2);
  at::Tensor q = at::randn({2, 2, 4, 8}), k = at::randn({2, 2, 5, 8}), v = at::randn({2, 2, 5, 8});
  at::Tensor sinks = at::randn({2});
  std::vector<at::Tensor> ours = {q, k, v, sinks};
  std::vector<at::Tensor> theirs;
  for (const at::Tensor& x : ours) theirs.push_back(x.to(at::kDouble));
  for (at::Tensor& x : ours) x.requires_grad_();
  for (at::Tensor& x : theirs) x.requires_grad_();
  at::Tensor lse;
  const at::Tensor out = attention({}, ours[0], ours[1], ours[2], sinks_of(ours[3]), &lse);

  const at::Tensor logits = at::matmul(theirs[0], theirs[1].transpose(2, 3)) / std::sqrt(8.0);
  const at::Tensor with_sink = at::cat({logits, theirs[3].view({1, 2, 1, 1}).expand({2, 2, 4, 1})}, 3);
  const at::Tensor want_lse = with_sink.logsumexp(3);
  const at::Tensor want = at::matmul(at::exp(logits - want_lse.unsqueeze(3)), theirs[2]);
  EXPECT_LE(error(out, want), 4e-6);
  EXPECT_LE(error(lse, want_lse), 4e-6);
  const auto got_gradients = torch::autograd::grad({(out * out).sum() + (lse * lse).sum()}, ours);
  const auto want_gradients =
      torch::autograd::grad({(want * want).sum() + (want_lse * want_lse).sum()}, theirs);
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_LE(error(got_gradients[i], want_gradients[i]), 1e-5) << "input " << i;
}

TEST(Attention, PaddedAndDenselyMaskedBatchesEqualLibtorch) {
  at::manual_seed(3);
  const at::Tensor q = at::randn({2, 2, 6, 8}), k = at::randn({2, 2, 6, 8}), v = at::randn({2, 2, 6, 8});
  const at::Tensor lengths = at::tensor(std::vector<int64_t>{4, 6});
  const at::Tensor visible = (at::arange(6).unsqueeze(0) < lengths.unsqueeze(1)).view({2, 1, 1, 6});
  const at::Tensor want = at::scaled_dot_product_attention(q.to(at::kDouble), k.to(at::kDouble),
                                                           v.to(at::kDouble), visible.expand({2, 1, 6, 6}));
  Spec padded, dense;
  padded.mask = Mask::key_lengths();
  dense.mask = Mask::dense();
  EXPECT_LE(error(attention(padded, q, k, v, key_lengths_of(lengths)), want), 4e-6);
  EXPECT_LE(error(attention(dense, q, k, v, dense_mask_of(visible)), want), 4e-6);
}

TEST(Attention, NoGraphIsKeptWhenNoGradientIsWanted) {
  at::Tensor q = at::randn({1, 1, 3, 4}), k = at::randn({1, 1, 3, 4}), v = at::randn({1, 1, 3, 4});
  EXPECT_FALSE(attention({}, q, k, v).requires_grad());
  q.requires_grad_();
  EXPECT_TRUE(attention({}, q, k, v).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(attention({}, q, k, v).requires_grad());
}

TEST(Attention, SecondDerivativeIsRefused) {
  at::Tensor q = at::randn({1, 1, 3, 4}).requires_grad_();
  const at::Tensor k = at::randn({1, 1, 3, 4}), v = at::randn({1, 1, 3, 4});
  const at::Tensor out = attention({}, q, k, v);
  EXPECT_THROW(torch::autograd::grad({out.sum()}, {q}, {}, std::nullopt, /*create_graph=*/true),
               std::invalid_argument);
}

TEST(Attention, StridedTensorsAreReadInPlace) {
  at::manual_seed(4);
  const at::Tensor packed = at::randn({2, 5, 3, 4, 8});  // batch, position, q/k/v, head, size
  const auto part = [&](int64_t i) { return packed.select(2, i).transpose(1, 2); };
  EXPECT_FALSE(part(0).is_contiguous());
  const at::Tensor want = attention({}, part(0).contiguous(), part(1).contiguous(), part(2).contiguous());
  EXPECT_TRUE(at::equal(attention({}, part(0), part(1), part(2)), want));
  EXPECT_EQ(operands(part(0), part(1), part(2)).k.data, part(1).const_data_ptr());
}

TEST(Attention, SixteenBitInputsGiveTheirOwnType) {
  at::manual_seed(5);
  const at::Tensor q = at::randn({1, 2, 7, 16}), k = at::randn({1, 2, 9, 16}), v = at::randn({1, 2, 9, 16});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor q16 = q.to(type), k16 = k.to(type), v16 = v.to(type);
    const at::Tensor out = attention({}, q16, k16, v16);
    EXPECT_EQ(out.scalar_type(), type);
    const at::Tensor want =
        at::scaled_dot_product_attention(q16.to(at::kDouble), k16.to(at::kDouble), v16.to(at::kDouble));
    EXPECT_LE(error(out, want), type == at::kHalf ? 1e-3 : 8e-3);
  }
}

TEST(Attention, RecomputedWeightsSumToOneAndGiveTheOutput) {
  at::manual_seed(6);
  const at::Tensor q = at::randn({1, 4, 6, 8}), k = at::randn({1, 2, 6, 8}), v = at::randn({1, 2, 6, 8});
  Spec spec;
  spec.mask = Mask::causal(Align::bottom_right);
  at::Tensor lse;
  const at::Tensor out = attention(spec, q, k, v, {}, &lse);
  for (int64_t head = 0; head < 4; ++head) {
    const at::Tensor map = weights(spec, q, k, lse, 0, head, 0, 6, 0, 6);
    EXPECT_LE(error(map.sum(1), at::ones({6})), 1e-5);
    EXPECT_EQ(map[0][1].item<float>(), 0);
    EXPECT_LE(error(at::mm(map, v[0][head / 2]), out[0][head]), 1e-5);
    EXPECT_TRUE(
        at::equal(weights(spec, q, k, lse, 0, head, 2, 3, 1, 4), map.narrow(0, 2, 3).narrow(1, 1, 4)));
  }
}

TEST(Attention, MalformedTensorsAreNamed) {
  const at::Tensor x = at::randn({1, 1, 3, 4});
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message([&] { attention({}, x.to(at::kDouble), x, x); }).find("q is Double"), std::string::npos);
  EXPECT_NE(message([&] { attention({}, x, x[0], x); }).find("k is"), std::string::npos);
  EXPECT_NE(message([&] { attention({}, x, x, {}); }).find("v is undefined"), std::string::npos);
  EXPECT_NE(message([&] {
              attention({}, x, x, x, bias_of(at::randn({2, 3})));
            }).find("bias is"),
            std::string::npos);
}

}  // namespace
}  // namespace regard::autograd
