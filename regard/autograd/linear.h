#pragma once

#include <ATen/core/Tensor.h>

#include "regard/attention/linear.h"

namespace regard::autograd {

// What a call may carry beside q, k and v; undefined: not there.
struct LinearExtras {
  at::Tensor log_decay;    // broadcasts to [B, Hkv, Lk, Dk]
  at::Tensor beta;         // broadcasts to [B, Hkv, Lk, 1]
  at::Tensor state;        // [B, Hkv, Dk, Dv] before the first key
  at::Tensor norm;         // [B, Hkv, Dk, 1] likewise; with a denominator
  at::Tensor key_lengths;  // int64 [B]
};

struct LinearResult {
  at::Tensor out;    // [B, Hq, Lq, Dv] in the type of q, laid out as [B, Lq, Hq, Dv]
  at::Tensor state;  // [B, Hkv, Dk, Dv] after the last key
  at::Tensor norm;   // [B, Hkv, Dk, 1]; undefined without a denominator
};

// attention::linear_attention() as an operator of libtorch, on its threads. q: [B, Hq, Lq, Dk], k: [B, Hkv,
// Lk, Dk], v: [B, Hkv, Lk, Dv], float32, bfloat16 or float16, any strides; the extras and states float32.
// Gradients flow to q, k, v, log_decay, beta, state and norm, from out, state and norm; the backward keeps
// inputs and out, and makes a state for each chunk again. All of it in float64 runs the plain reference, for
// checks of gradients: slow, the same order of steps. A second derivative throws. Throws
// std::invalid_argument on a malformed call.
LinearResult linear_attention(const attention::LinearSpec& spec, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const LinearExtras& extras = {});

}  // namespace regard::autograd
