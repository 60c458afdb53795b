#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "regard/attention/cache.h"
#include "regard/attention/spec.h"
#include "regard/autograd/attention.h"

namespace regard::autograd {

// attention::KvCache::append() of tensors: k [B, Hkv, L, Dk], v [B, Hkv, L, Dv] (undefined where values lie
// in keys), float32, bfloat16 or float16, any strides.
void append(attention::KvCache& cache, std::span<const int64_t> sequences, const at::Tensor& k,
            const at::Tensor& v);

// attention::decode() of tensors, on libtorch's threads: the last Lq positions of some sequences over what
// the cache holds. q: [B, Hq, Lq, Dk]; returns [B, Hq, Lq, Dv] in the type of q, laid out as attention()
// does; lse, if asked for, becomes [B, Hq, Lq] float32. What has an axis of keys in extras counts from each
// sequence's beginning. No gradients: throws std::invalid_argument where one is wanted of q or of extras, and
// on a malformed call.
at::Tensor decode(const attention::Spec& spec, const at::Tensor& q, const attention::KvCache& cache,
                  std::span<const int64_t> sequences, const AttentionExtras& extras = {},
                  at::Tensor* lse = nullptr);

// The weights [B, Hq, N] float32 of decode() for q of one row each, N the length of the longest sequence,
// recomputed from lse as decode() returned it; 0 beyond a sequence's end. spec's mask must need no data.
at::Tensor decode_weights(const attention::Spec& spec, const at::Tensor& q, const attention::KvCache& cache,
                          std::span<const int64_t> sequences, const at::Tensor& lse);

}  // namespace regard::autograd
