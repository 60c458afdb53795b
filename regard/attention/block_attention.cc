#include "regard/attention/block_attention.h"

#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/attention/attention.h"
#include "regard/attention/merge.h"
#include "regard/attention/owned.h"

namespace regard::attention {
namespace {

void check_call(const BlockAttentionOptions& options, const Operands& operands) {
  if (options.block < 1) {
    throw std::invalid_argument("block_attention: block is " + std::to_string(options.block) +
                                "; allowed: 1 or more");
  }
  check_plain("block_attention", operands);
  if (operands.q.size[2] != operands.k.size[2]) {
    throw std::invalid_argument("block_attention: q has " + std::to_string(operands.q.size[2]) +
                                " rows and k " + std::to_string(operands.k.size[2]) +
                                "; allowed: equally many");
  }
}

// Means of blocks of positions.
Owned pool(const View<const float>& x, int64_t block) {
  const auto [B, H, L, D] = x.size;
  Owned pooled({B, H, (L + block - 1) / block, D});
  const View<float> to = pooled.view();
  std::vector<double> sum(D);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t begin = 0; begin < L; begin += block) {
        const int64_t end = std::min(begin + block, L);
        std::fill(sum.begin(), sum.end(), 0.0);
        for (int64_t i = begin; i < end; ++i)
          for (int64_t d = 0; d < D; ++d) sum[d] += static_cast<double>(x(b, h, i, d));
        for (int64_t d = 0; d < D; ++d)
          to(b, h, begin / block, d) = static_cast<float>(sum[d] / static_cast<double>(end - begin));
      }
  return pooled;
}

// x += what the means passed on to each position: a mean gives its gradient to all alike.
void add_spread(const View<const float>& pooled, int64_t block, const View<float>& x) {
  const auto [B, H, L, D] = x.size;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < L; ++i) {
        const int64_t begin = i / block * block;
        const float share = 1.0F / static_cast<float>(std::min(begin + block, L) - begin);
        for (int64_t d = 0; d < D; ++d) x(b, h, i, d) += share * pooled(b, h, i / block, d);
      }
}

// The two calls that block attention is made of, with what they need beside the operands.
struct Parts {
  Spec fine_spec, coarse_spec;
  Operands fine, coarse;
  Owned keys, values;
  std::vector<float> bias;       // ln of the keys of each block
  std::vector<uint8_t> not_own;  // [blocks, blocks]

  Parts(const BlockAttentionOptions& options, const Operands& operands)
      : fine(operands),
        coarse(operands),
        keys(pool(operands.k.as<const float>(), options.block)),
        values(pool(operands.v.as<const float>(), options.block)) {
    const int64_t length = operands.k.size[2];
    const int64_t blocks = keys.size()[2];
    fine_spec.scale = coarse_spec.scale = options.scale;
    fine_spec.mask = Mask::same_block(options.block, Align::top_left);
    if (options.causal) fine_spec.mask = fine_spec.mask & Mask::causal(Align::top_left);
    coarse_spec.mask = Mask::blocks(options.block, 1);
    coarse.k = keys.const_view();
    coarse.v = values.const_view();
    for (int64_t c = 0; c < blocks; ++c) {
      const int64_t size = std::min((c + 1) * options.block, length) - c * options.block;
      bias.push_back(static_cast<float>(std::log(static_cast<double>(size))));
    }
    not_own.resize(blocks * blocks);
    for (int64_t own = 0; own < blocks; ++own)
      for (int64_t c = 0; c < blocks; ++c) not_own[own * blocks + c] = options.causal ? c < own : c != own;
    coarse.bias = {bias.data(), {1, 1, 1, blocks}};
    coarse.block_mask = {not_own.data(), {1, 1, blocks, blocks}};
  }
};

}  // namespace

void block_attention(const BlockAttentionOptions& options, const Operands& operands,
                     kernel::Parallel& parallel) {
  check_call(options, operands);
  const kernel::Extents& size = operands.out.size;
  if (size[0] * size[1] * size[2] == 0) return;
  Parts parts(options, operands);
  const kernel::Extents rows{size[0], size[1], size[2], 1};
  std::array<Owned, 2> out{Owned(size), Owned(size)};
  std::array<Owned, 3> lse{Owned(rows), Owned(rows), Owned(rows)};
  parts.fine.out = out[0].view();
  parts.fine.lse = lse[0].view();
  parts.coarse.out = out[1].view();
  parts.coarse.lse = lse[1].view();
  attention(parts.fine_spec, parts.fine, parallel);
  attention(parts.coarse_spec, parts.coarse, parallel);
  const std::array<PartialResult, 2> results{PartialResult{out[0].view(), lse[0].view()},
                                             PartialResult{out[1].view(), lse[1].view()}};
  merge(results, operands.out.as<float>(), operands.lse ? operands.lse : lse[2].view(), parallel);
}

void block_attention_backward(const BlockAttentionOptions& options, const Operands& operands,
                              const Arriving& arriving, const Gradients& gradients,
                              kernel::Parallel& parallel) {
  check_call(options, operands);
  check_plain_gradients("block_attention", gradients);
  const kernel::Extents& size = operands.out.size;
  if (size[0] * size[1] * size[2] == 0) return;
  Parts parts(options, operands);
  // out and lse are those of the whole: see merge().
  backward(parts.fine_spec, parts.fine, arriving, gradients, parallel);
  Owned grad_q(gradients.q ? operands.q.size : kernel::Extents{});
  Owned grad_k(gradients.k ? parts.keys.size() : kernel::Extents{});
  Owned grad_v(gradients.v ? parts.values.size() : kernel::Extents{});
  Gradients coarse;
  if (gradients.q) coarse.q = grad_q.view();
  if (gradients.k) coarse.k = grad_k.view();
  if (gradients.v) coarse.v = grad_v.view();
  backward(parts.coarse_spec, parts.coarse, arriving, coarse, parallel);
  if (gradients.q) add_spread(grad_q.view(), 1, gradients.q.as<float>());
  if (gradients.k) add_spread(grad_k.view(), options.block, gradients.k.as<float>());
  if (gradients.v) add_spread(grad_v.view(), options.block, gradients.v.as<float>());
}

}  // namespace regard::attention
