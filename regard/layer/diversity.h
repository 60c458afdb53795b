#pragma once

#include <ATen/core/Tensor.h>

#include "regard/autograd/attention.h"

namespace regard::layer {

// How much the heads of a layer differ: D = mean over (b, h, i, j) of (A_bhij - mean over h of A_bhij)^2, the
// variance of attention weights across heads. 0 for identical heads, and larger the more they differ: a loss
// that wants different heads takes -lambda D; with +lambda D they collapse into one. A weight is about 1 / n
// for n keys, so D falls as 1 / n^2 and lambda belongs to a length.
//
// q: [B, Hq, L, D], k: [B, Hkv, Lk, D] float32, before dropout. A scalar with gradients to q and k. Weights
// are made in tiles of rows and again in the backward: O(L^2) time, O(L) memory. A second derivative throws,
// and so does a softcap.
at::Tensor head_diversity(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k,
                          const autograd::AttentionExtras& extras = {});

}  // namespace regard::layer
