#pragma once

#include <ATen/core/Tensor.h>

#include "regard/attention/spec.h"

namespace regard::autograd {

// What a call may carry beside q, k and v; undefined: not there.
struct AttentionExtras {
  at::Tensor bias;    // float32, broadcasts to [B, Hq, Lq, Lk]
  at::Tensor slopes;  // float32 [Hq] or [B, Hq]: ALiBi
  at::Tensor sinks;   // float32 [Hq] or [B, Hq]
  at::Tensor
      dense_mask;  // bool or uint8, broadcasts to [B, Hq, Lq, Lk], true: may attend; with Mask::dense()
  at::Tensor key_lengths;     // int64 [B]; with Mask::key_lengths()
  uint64_t dropout_seed = 0;  // with Spec::dropout
  uint64_t dropout_offset = 0;
  int64_t dropout_first_batch = 0;
  at::Tensor query_segments;  // int32 [Lq] or [B, Lq]; with Mask::segments()
  at::Tensor key_segments;    // int32 [Lk] or [B, Lk]; likewise
  at::Tensor block_mask;      // bool or uint8, broadcasts to [B, Hq, ceil(Lq / block_rows),
                              // ceil(Lk / block_keys)], true: may attend; with Mask::blocks()
};

// The operands as views. They borrow: q, k, v and the extras must outlive them.
attention::Operands operands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionExtras& extras = {});

// The extras alone, for a call of [B, Hq, Lq, Lk] pairs.
void add_extras(const AttentionExtras& extras, const kernel::Extents& square, attention::Operands& call);

// Attention as an operator of libtorch, on its threads. q: [B, Hq, Lq, Dk], k: [B, Hkv, Lk, Dk], v: [B, Hkv,
// Lk, Dv], float32, bfloat16 or float16, any strides. Returns [B, Hq, Lq, Dv] in the type of q, laid out as
// [B, Lq, Hq, Dv] so that joining the heads copies nothing. lse, if asked for, becomes [B, Hq, Lq] float32.
// Gradients flow to q, k, v, bias, slopes and sinks, also from lse; the backward keeps q, k, v, the result
// and lse, and recomputes weights block by block. A second derivative throws. Without a gradient wanted
// nothing is kept. Throws std::invalid_argument on a malformed call. Scores and masks written as functions:
// custom.h.
at::Tensor attention(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, const AttentionExtras& extras = {}, at::Tensor* lse = nullptr);

// The same over documents of any lengths that lie one after the other, each a problem of its own
// (attention::varlen_attention). q: [1, Hq, all queries, Dk], k and v likewise; query_starts, key_starts:
// int64 [documents + 1], "cu_seqlens". Gradients as above; a bias and masks that need data are refused.
at::Tensor varlen_attention(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& query_starts, const at::Tensor& key_starts,
                            const AttentionExtras& extras = {}, at::Tensor* lse = nullptr);

// Attention weights [rows, keys] float32 of one batch entry and head, recomputed from q, k and lse (as
// attention() returned it): rows [row, row + rows), keys [key, key + keys).
at::Tensor weights(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k,
                   const at::Tensor& lse, int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key,
                   int64_t keys, const AttentionExtras& extras = {});

}  // namespace regard::autograd
