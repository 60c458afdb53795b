#pragma once

#include <vector>

#include "regard/attention/spec.h"

// The plain twin of every form: loops over the definition in float64, O(Lq * Lk) memory. It is the oracle of
// the tests, the second-derivative path and the documentation of what the kernels mean.
namespace regard::attention {

struct Reference {
  std::vector<double> out;          // [B, Hq, Lq, Dv]
  std::vector<double> lse;          // [B, Hq, Lq]
  std::vector<double> logits;       // [B, Hq, Lq, Lk], masked -inf
  std::vector<double> weights;      // [B, Hq, Lq, Lk], masked 0; the sink's mass is missing from the row sum
  std::vector<double> entropy;      // [B, Hq, Lq] nats, over keys
  std::vector<double> column_sums;  // [B, Hq, Lk]
};

// operands.out and operands.lse are not touched. A masked pair is never read, so nothing of it can leak.
// Throws std::invalid_argument like check().
Reference reference(const Spec& spec, const Operands& operands);

struct ReferenceGradients {
  std::vector<double> q, k, v;  // shapes of q, k, v
  std::vector<double> bias;     // full [B, Hq, Lq, Lk], also without a bias: d / d logit; sums over broadcast
                                // axes are the caller's
  std::vector<double> slopes;   // [B, Hq]; empty without slopes
  std::vector<double> sinks;    // [B, Hq]; empty without sinks
};

// Gradients of sum(grad_out * out) + sum(grad_lse * lse). grad_out: [B, Hq, Lq, Dv]; grad_lse: [B, Hq, Lq] or
// empty.
ReferenceGradients reference_backward(const Spec& spec, const Operands& operands,
                                      const std::vector<double>& grad_out,
                                      const std::vector<double>& grad_lse = {});

}  // namespace regard::attention
