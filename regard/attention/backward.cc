#include "regard/attention/backward.h"

#include "regard/attention/lower.h"
#include "regard/attention/scratch.h"
#include "regard/kernel/backward.h"

namespace regard::attention {

void backward(const Spec& spec, const Operands& operands, ConstAnyView grad_out, View<const float> grad_lse,
              const Gradients& gradients, kernel::Parallel& parallel) {
  check_gradients(spec, operands, grad_out, grad_lse, gradients);
  const kernel::Extents& q = operands.q.size;
  const BoundMask mask = bind_mask(spec, operands);
  kernel::Backward problem;
  problem.forward = lower(spec, operands, mask);
  problem.grad_out = grad_out;
  problem.grad_lse = grad_lse;
  problem.grad_q = gradients.q;
  problem.grad_k = gradients.k;
  problem.grad_v = gradients.v;
  const kernel::Extents heads{q[0], q[1], 1, 1};
  if (gradients.bias) problem.grad_bias = broadcast(gradients.bias, {q[0], q[1], q[2], operands.k.size[2]});
  if (gradients.slopes) problem.grad_slopes = broadcast(gradients.slopes, heads);
  if (gradients.sinks) problem.grad_sinks = broadcast(gradients.sinks, heads);
  const kernel::BackwardTiling tiling = kernel::choose_backward_tiling(problem);
  const Scratch scratch(kernel::backward_workspace(problem, tiling, parallel.workers()));
  kernel::backward(problem, tiling, scratch.bytes(), parallel);
}

}  // namespace regard::attention
