#pragma once

#include <cstddef>
#include <span>

#include "regard/kernel/forward.h"

// Additive attention (Bahdanau et al. 2015, arXiv 1409.0473, appendix A): the score of query i and key j is
// sum over f of vector_f tanh(q_if + k_jf), with q and k already projected. A score costs Dk tanhs and no
// product shares them: this is why the dot product won.
namespace regard::kernel {

struct Additive {
  Forward forward;  // scale 1; q [B, Hq, Lq, Dk] and k [B, Hkv, Lk, Dk] are what the tanh adds. No pages,
                    // caller's score, softcap; everything else as it is there
  View<const float> vector;  // [B, Hq, 1, Dk]; zero strides repeat
};

// Bytes of scratch; a function of the problem and the number of workers.
size_t additive_workspace(const Additive& problem, int workers);

// As forward(): fills out, lse and what is observed; allocates nothing; bits do not depend on the workers.
// workspace: additive_workspace() bytes, aligned to 64.
void additive(const Additive& problem, std::span<std::byte> workspace, Parallel& parallel);

// Gradients of sum(grad_out * out) + sum(grad_lse * lse). Whatever has no data is not computed; the rest is
// overwritten. Of the forward's options only the mask is known here.
struct AdditiveBackward {
  Additive additive;           // as it ran: its out (float32) and its lse are inputs here, both needed
  View<const float> grad_out;  // [B, Hq, Lq, Dv]
  View<const float> grad_lse;  // [B, Hq, Lq, 1]; data == nullptr: 0
  View<float> grad_q;          // [B, Hq, Lq, Dk]
  View<float> grad_k;          // [B, Hkv, Lk, Dk]
  View<float> grad_v;          // [B, Hkv, Lk, Dv]
  View<float> grad_vector;     // [B, Hq, 1, Dk]; zero strides sum, as the vector was broadcast
};

size_t additive_backward_workspace(const AdditiveBackward& problem, int workers);

// As backward().
void additive_backward(const AdditiveBackward& problem, std::span<std::byte> workspace, Parallel& parallel);

}  // namespace regard::kernel
