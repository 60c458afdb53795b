#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "regard/kernel/forward.h"

// Gradients of softmax attention. Nothing of the size Lq * Lk is kept: weights are recomputed from q, k and
// lse, block by block.
namespace regard::kernel {

// Gradients of sum(grad_out * out) + sum(grad_lse * lse). Whatever has no data is not computed.
struct Backward {
  Forward forward;             // as it ran: its out and its lse are inputs here, both needed
  ConstAnyView grad_out;       // [B, Hq, Lq, Dv], f32 or the type of q
  View<const float> grad_lse;  // [B, Hq, Lq, 1]; data == nullptr: 0
  AnyView grad_q;              // [B, Hq, Lq, Dk], f32 or the type of q
  AnyView grad_k;              // [B, Hkv, Lk, Dk], likewise
  AnyView grad_v;              // [B, Hkv, Lk, Dv], likewise
  View<float> grad_bias;       // [B, Hq, Lq, Lk]; zero strides sum, as the bias was broadcast
  View<float> grad_slopes;     // [B, Hq, 1, 1], likewise
  View<float> grad_sinks;      // [B, Hq, 1, 1], likewise
};

// How a problem is cut: a function of the problem alone, so that bits do not depend on the threads.
struct BackwardTiling {
  int64_t chunk_keys = 0;   // keys of a task, a multiple of 96; dQ is the sum over chunks in their order
  int64_t block_rows = 96;  // query rows of a block of weights, 96 or 48
};

BackwardTiling choose_backward_tiling(const Backward& problem);

// Bytes of scratch that backward() needs: O(Lq + Lk) a worker, and where there are fewer heads than threads
// might be, a few copies of grad_q in float32.
size_t backward_workspace(const Backward& problem, const BackwardTiling& tiling, int workers);

// Runs. Allocates nothing; workspace must hold backward_workspace() bytes, aligned to 64. Gradients are
// overwritten and may not overlap anything.
void backward(const Backward& problem, const BackwardTiling& tiling, std::span<std::byte> workspace,
              Parallel& parallel);

}  // namespace regard::kernel
