#pragma once

#include <cstddef>
#include <span>

#include "regard/attention/bound_mask.h"
#include "regard/attention/spec.h"
#include "regard/kernel/backward.h"
#include "regard/kernel/parallel.h"

namespace regard::attention {

// Where gradients go; what has no data is not computed. Each is overwritten and has the sizes of its operand:
// what an operand of size 1 repeats is summed.
struct Gradients {
  AnyView q;           // f32 or the type of q
  AnyView k;           // likewise
  AnyView v;           // likewise
  View<float> bias;    // only with Operands::bias
  View<float> slopes;  // only with Operands::slopes
  View<float> sinks;   // only with Operands::sinks
};

// What arrives from behind: the gradients of the results.
struct Arriving {
  ConstAnyView out;       // [B, Hq, Lq, Dv], f32 or the type of q, any strides
  View<const float> lse;  // [B, Hq, Lq, 1]; no data: 0
};

// Gradients of sum(arriving.out * out) + sum(arriving.lse * lse). operands.out and operands.lse are what
// attention() made of the same operands. Memory beyond the gradients is O(Lq + Lk); bits do not depend on the
// number of workers. Throws std::invalid_argument on a malformed call.
void backward(const Spec& spec, const Operands& operands, const Arriving& arriving,
              const Gradients& gradients, kernel::Parallel& parallel = kernel::default_parallel());

// As Plan, for backward(): made once for a form of the problem, run without a check or an allocation.
class BackwardPlan {
 public:
  // Throws std::invalid_argument like backward(). Sizes, strides and types are read, and which optional
  // operands and gradients exist.
  BackwardPlan(const Spec& spec, const Operands& operands, const Arriving& arriving,
               const Gradients& gradients);

  size_t workspace_bytes(int workers) const;

  // The operands and gradients must have the planned form. workspace is aligned to 64 bytes and holds
  // workspace_bytes(parallel.workers()).
  void run(const Operands& operands, const Arriving& arriving, const Gradients& gradients,
           std::span<std::byte> workspace, kernel::Parallel& parallel) const;

  const kernel::BackwardTiling& tiling() const { return tiling_; }

 private:
  BoundMask form_mask() const;

  Spec spec_;
  Operands form_;  // the data is never read
  Arriving arriving_form_;
  Gradients gradients_form_;
  int64_t period_ = 0;  // of the stride whose residue classes run apart; 0: the call runs as one
  kernel::BackwardTiling tiling_;
};

}  // namespace regard::attention
