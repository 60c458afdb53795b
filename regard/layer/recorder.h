#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "regard/attention/spec.h"

namespace regard::layer {

// One attention call as a layer made it. q and k carry their positions (RoPE applied) in the published
// layout.
struct AttentionCall {
  int64_t layer = 0;
  const attention::Spec* spec = nullptr;
  at::Tensor q;             // [B, Hq, Lq, Dk]
  at::Tensor k;             // [B, Hkv, Lk, Dk], all keys that the rows may see, the cache's included
  at::Tensor v;             // [B, Hkv, Lk, Dv]
  at::Tensor lse;           // [B, Hq, Lq] float32
  at::Tensor key_lengths;   // [B] int64 or undefined
  int64_t first_query = 0;  // position of row 0 (> 0 when earlier rows came in an earlier call)
  at::Tensor segments{};    // [B, L] int32 the documents of a packed batch (Mask::segments()), or undefined
  at::Tensor joined{};      // [width, Hq Dv] the matrix that joins the heads; undefined: not given
  at::Tensor x;             // [B, Lq, width] what q, k and v are projected from; undefined: not given
};

// Told of every attention call while a model runs. Recording never changes a result: a layer does not know
// what is kept of the call.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual bool wants(int64_t layer) const = 0;
  virtual void record(const AttentionCall& call) = 0;
};

}  // namespace regard::layer
