#pragma once

#include <cstdint>
#include <vector>

#include "regard/attention/linear.h"

// The plain twin of linear attention: the recurrence, position by position, in float64. It is the oracle of
// the tests and says what the kernels mean.
namespace regard::attention {

// Operands as contiguous arrays. Those that may be absent are empty then.
struct LinearArrays {
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 0, keys = 0, dk = 0, dv = 0;
  std::vector<double> q{}, k{}, v{};    // [B, Hq, Lq, Dk], [B, Hkv, Lk, Dk], [B, Hkv, Lk, Dv]
  std::vector<double> log_decay{};      // [B, Hkv, Lk, Dk]
  std::vector<double> beta{};           // [B, Hkv, Lk]
  std::vector<double> state{}, norm{};  // [B, Hkv, Dk, Dv], [B, Hkv, Dk]
  std::vector<int64_t> key_lengths{};   // [B]
};

// What is broadcast is repeated.
LinearArrays linear_arrays(const LinearSpec& spec, const LinearOperands& operands);

struct LinearReference {
  std::vector<double> out;           // [B, Hq, Lq, Dv]
  std::vector<double> denominators;  // [B, Hq, Lq]; 1 without one
  std::vector<double> state, norm;   // after the last key
};

LinearReference linear_reference(const LinearSpec& spec, const LinearArrays& arrays);

// Shapes as in LinearArrays.
struct LinearReferenceGradients {
  std::vector<double> q, k, v, log_decay, beta, state, norm;
};

// Gradients of sum(grad_out * out) + sum(grad_state * state) + sum(grad_norm * norm); the last two may be
// empty. Keeps a state a step: for small sizes.
LinearReferenceGradients linear_reference_backward(const LinearSpec& spec, const LinearArrays& arrays,
                                                   const std::vector<double>& grad_out,
                                                   const std::vector<double>& grad_state = {},
                                                   const std::vector<double>& grad_norm = {});

}  // namespace regard::attention
