#pragma once

#include <ATen/core/Tensor.h>

#include "regard/attention/block_attention.h"
#include "regard/attention/lsh_attention.h"
#include "regard/attention/mask.h"
#include "regard/autograd/attention.h"

// Forms beside the dot product as operators of libtorch, on its threads. All take and give float32; first
// derivatives only, a second one throws. lse, if asked for, becomes [B, H, L] float32, and gradients flow
// from it too.
namespace regard::autograd {

// Additive attention, see attention/additive.h. q: [B, Hq, Lq, Da] and k: [B, Hkv, Lk, Da] already projected,
// v: [B, Hkv, Lk, Dv], vector: [Hq, Da] or [1, Da]. Gradients flow to all four. Of the extras only dense_mask
// and key_lengths have a meaning.
at::Tensor additive_attention(const attention::Mask& mask, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const at::Tensor& vector,
                              const AttentionExtras& extras = {}, at::Tensor* lse = nullptr);

// Fine inside a block, coarse across, see attention/block_attention.h. q: [B, Hq, L, Dk], k: [B, Hkv, L, Dk],
// v: [B, Hkv, L, Dv].
at::Tensor block_attention(const attention::BlockAttentionOptions& options, const at::Tensor& q,
                           const at::Tensor& k, const at::Tensor& v, at::Tensor* lse = nullptr);

// Hashed attention with shared queries and keys, see attention/lsh_attention.h. q: [B, H, L, Dk], v: [B, H,
// L, Dv].
at::Tensor lsh_attention(const attention::LshOptions& options, const at::Tensor& q, const at::Tensor& v,
                         at::Tensor* lse = nullptr);

}  // namespace regard::autograd
