#pragma once

#include "regard/attention/spec.h"
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

// Gradients of sum(grad_out * out) + sum(grad_lse * lse). operands.out and operands.lse are what attention()
// made of the same operands. grad_out: [B, Hq, Lq, Dv], f32 or the type of q, any strides. grad_lse: [B, Hq,
// Lq, 1] or no data. Memory beyond the gradients is O(Lq + Lk); bits do not depend on the number of workers.
// Throws std::invalid_argument on a malformed call.
void backward(const Spec& spec, const Operands& operands, ConstAnyView grad_out, View<const float> grad_lse,
              const Gradients& gradients, kernel::Parallel& parallel = kernel::default_parallel());

}  // namespace regard::attention
