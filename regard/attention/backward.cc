#include "regard/attention/backward.h"

#include "regard/attention/lower.h"
#include "regard/attention/scratch.h"

namespace regard::attention {
namespace {

kernel::Backward lower_backward(const Spec& spec, const Operands& operands, const BoundMask& mask,
                                const Arriving& arriving, const Gradients& gradients) {
  const kernel::Extents& q = operands.q.size;
  const kernel::Extents heads{q[0], q[1], 1, 1};
  kernel::Backward problem;
  problem.forward = lower(spec, operands, mask);
  problem.grad_out = arriving.out;
  problem.grad_lse = arriving.lse;
  problem.grad_q = gradients.q;
  problem.grad_k = gradients.k;
  problem.grad_v = gradients.v;
  if (gradients.bias) problem.grad_bias = broadcast(gradients.bias, {q[0], q[1], q[2], operands.k.size[2]});
  if (gradients.slopes) problem.grad_slopes = broadcast(gradients.slopes, heads);
  if (gradients.sinks) problem.grad_sinks = broadcast(gradients.sinks, heads);
  return problem;
}

}  // namespace

BackwardPlan::BackwardPlan(const Spec& spec, const Operands& operands, const Arriving& arriving,
                           const Gradients& gradients)
    : spec_(spec), form_(operands), arriving_form_(arriving), gradients_form_(gradients) {
  check_backward(spec, operands, arriving, gradients);
  const BoundMask mask = bind_form(spec_, form_);
  tiling_ = kernel::choose_backward_tiling(lower_backward(spec_, form_, mask, arriving, gradients));
}

size_t BackwardPlan::workspace_bytes(int workers) const {
  const BoundMask mask = bind_form(spec_, form_);
  return kernel::backward_workspace(lower_backward(spec_, form_, mask, arriving_form_, gradients_form_),
                                    tiling_, workers);
}

void BackwardPlan::run(const Operands& operands, const Arriving& arriving, const Gradients& gradients,
                       std::span<std::byte> workspace, kernel::Parallel& parallel) const {
  const BoundMask mask = bind_mask(spec_, operands);
  kernel::backward(lower_backward(spec_, operands, mask, arriving, gradients), tiling_, workspace, parallel);
}

void backward(const Spec& spec, const Operands& operands, const Arriving& arriving,
              const Gradients& gradients, kernel::Parallel& parallel) {
  check(spec, operands);
  const BackwardPlan plan(spec, operands, arriving, gradients);
  const Scratch scratch(plan.workspace_bytes(parallel.workers()));
  plan.run(operands, arriving, gradients, scratch.bytes(), parallel);
}

}  // namespace regard::attention
