#pragma once

#include <cstdint>

#include "regard/kernel/parallel.h"
#include "regard/kernel/view.h"

// The parts of a transformer block between its products, each in one pass over float32 (norms: norm.h). Few
// numbers are done by the caller's thread; the bits are the same for any number of threads.
namespace regard::kernel {

// out[i] = silu(gate[i]) * up[i], silu(a) = a / (1 + exp(-a)) (SwiGLU: Shazeer 2020, equation 6). gate, up:
// [rows, features] with `stride` floats from row to row; out: [rows, features].
void gated_silu(const float* gate, const float* up, int64_t stride, int64_t rows, int64_t features,
                float* out, Parallel& parallel);

// Its gradients, for grad [rows, features] of out. d_gate, d_up: as gate and up, with the same stride.
void gated_silu_backward(const float* gate, const float* up, int64_t stride, const float* grad, int64_t rows,
                         int64_t features, float* d_gate, float* d_up, Parallel& parallel);

// Turns feature pairs (i, i + D/2) by the angle of their position: out = (x_i cos - x_j sin, x_j cos + x_i
// sin) (Su et al. 2021, equation 34, in the layout of halves). x, out: [B, H, L, D], feature stride 1; cos,
// sin: [L, D/2]. out may be x.
void rotate_halves(const View<const float>& x, const float* cos, const float* sin, const View<float>& out,
                   Parallel& parallel);

}  // namespace regard::kernel
