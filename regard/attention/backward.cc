#include "regard/attention/backward.h"

#include "regard/attention/lower.h"
#include "regard/attention/scratch.h"

namespace regard::attention {
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
  const BackwardPlan plan(spec, operands, arriving, gradients);
  check_data(operands);
  const Scratch scratch(plan.workspace_bytes(parallel.workers()));
  plan.run(operands, arriving, gradients, scratch.bytes(), parallel);
}

}  // namespace regard::attention
