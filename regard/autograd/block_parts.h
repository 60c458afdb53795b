#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// What stands between the products of a transformer block, as operators with gradients that make no copies
// beyond their results. float32; a second derivative throws.
namespace regard::autograd {

struct SplitHeads {
  at::Tensor q;  // [B, Hq, L, D], a view of the projection
  at::Tensor k;  // [B, Hkv, L, D]
  at::Tensor v;
};

// qkv [B, L, (Hq + 2 Hkv) D], contiguous: the projections of one product, cut into heads; q and k turned by
// their positions in the layout of halves (as layer::rotate). Turns them where they lie: qkv's numbers are
// overwritten, which is fine for a product's result and for nothing else. cos, sin: [L, 1, D / 2] or [B, L,
// 1, D / 2]; undefined: no positions. The gradients of all three come back as one tensor.
SplitHeads split_heads(const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& cos,
                       const at::Tensor& sin);

// both [..., 2 n]: gate, then up -> silu(gate) * up [..., n] (SwiGLU). Keeps `both` for the backward, which
// computes the activation again.
at::Tensor gated_silu(const at::Tensor& both);

}  // namespace regard::autograd
