// The parts of a block against the same composed of libtorch's operators in float64, forward and backward.
#include "regard/autograd/block_parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace regard::autograd {
namespace {

double error(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  return (got.detach().to(at::kDouble) - want.detach()).abs().max().item<double>() /
         std::max(1e-3, want.detach().abs().max().item<double>());
}

// [B, L, H, D] turned in the layout of halves; cos, sin [.., L, 1, D / 2].
at::Tensor turned(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor low = x.narrow(-1, 0, half), high = x.narrow(-1, half, half);
  return at::cat({low * cos - high * sin, high * cos + low * sin}, -1);
}

TEST(SplitHeads, EqualsCutAndTurnWithGradientsInOneTensor) {
  at::manual_seed(1);
  const int64_t batch = 3, length = 5;
  for (const auto& [heads, kv_heads, half] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 1, 1}, {4, 2, 3}, {6, 1, 16}})
    for (const int tables : {0, 1, 2}) {  // none, one for all, one a text
      SCOPED_TRACE(tables);
      const int64_t size = 2 * half, columns = (heads + 2 * kv_heads) * size;
      at::Tensor angle = tables == 2 ? at::randn({batch, length, 1, half}) : at::randn({length, 1, half});
      const at::Tensor cos = tables > 0 ? angle.cos() : at::Tensor(),
                       sin = tables > 0 ? angle.sin() : at::Tensor();
      const at::Tensor leaf = at::randn({batch, length, columns}).requires_grad_();
      const at::Tensor plain = leaf.detach().to(at::kDouble).requires_grad_();
      const SplitHeads got = split_heads(leaf * 1.0, heads, kv_heads, cos, sin);
      const auto part = [&](int64_t begin, int64_t count, bool turns) {
        at::Tensor x = plain.narrow(2, begin * size, count * size).view({batch, length, count, size});
        if (turns && tables > 0) x = turned(x, cos.to(at::kDouble), sin.to(at::kDouble));
        return x.transpose(1, 2);
      };
      const at::Tensor q = part(0, heads, true), k = part(heads, kv_heads, true),
                       v = part(heads + kv_heads, kv_heads, false);
      EXPECT_LE(error(got.q, q), 1e-6);
      EXPECT_LE(error(got.k, k), 1e-6);
      EXPECT_LE(error(got.v, v), 1e-6);
      const at::Tensor to_q = at::randn(q.sizes()), to_k = at::randn(k.sizes()), to_v = at::randn(v.sizes());
      ((got.q * to_q).sum() + (got.k * to_k).sum() + (got.v * to_v).sum()).backward();
      ((q * to_q).sum() + (k * to_k).sum() + (v * to_v).sum()).backward();
      EXPECT_LE(error(leaf.grad(), plain.grad()), 1e-6);
      // Only one of the three is used.
      leaf.mutable_grad() = at::Tensor();
      plain.mutable_grad() = at::Tensor();
      (split_heads(leaf * 1.0, heads, kv_heads, cos, sin).k * to_k).sum().backward();
      (part(heads, kv_heads, true) * to_k).sum().backward();
      EXPECT_LE(error(leaf.grad(), plain.grad()), 1e-6);
    }
}

TEST(SplitHeads, RefusesWhatDoesNotFit) {
  const at::Tensor cos = at::ones({5, 1, 2}), sin = at::zeros({5, 1, 2});
  EXPECT_THROW(split_heads(at::zeros({1, 5, 13}), 1, 1, {}, {}), std::invalid_argument);
  EXPECT_THROW(split_heads(at::zeros({2, 5, 12}).transpose(0, 1), 1, 1, {}, {}), std::invalid_argument);
  EXPECT_THROW(split_heads(at::zeros({1, 4, 12}), 1, 1, cos, sin), std::invalid_argument);
  EXPECT_THROW(split_heads(at::zeros({1, 5, 18}), 1, 1, cos, sin), std::invalid_argument);
  EXPECT_NO_THROW(split_heads(at::zeros({1, 5, 12}), 1, 1, cos, sin));
}

TEST(GatedSilu, EqualsTheProductAndItsGradients) {
  at::manual_seed(2);
  for (const int64_t inner : {1, 7, 8, 33, 704}) {
    const at::Tensor leaf = (at::randn({3, 4, 2 * inner}) * 3).requires_grad_();
    const at::Tensor plain = leaf.detach().to(at::kDouble).requires_grad_();
    const at::Tensor got = gated_silu(leaf);
    const at::Tensor want = at::silu(plain.narrow(-1, 0, inner)) * plain.narrow(-1, inner, inner);
    EXPECT_LE(error(got, want), 2e-6);
    const at::Tensor to = at::randn(got.sizes());
    (got * to).sum().backward();
    (want * to).sum().backward();
    EXPECT_LE(error(leaf.grad(), plain.grad()), 2e-6);
  }
  EXPECT_THROW(gated_silu(at::zeros({2, 3})), std::invalid_argument);
  const at::Tensor x = at::randn({2, 4}).requires_grad_();
  EXPECT_THROW(gated_silu(x).sum().backward({}, true, true), std::invalid_argument);
}

}  // namespace
}  // namespace regard::autograd
