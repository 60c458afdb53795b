#include "regard/attention/backward.h"

#include "regard/attention/lower.h"
#include "regard/attention/residue.h"
#include "regard/attention/scratch.h"

namespace regard::attention {

BackwardPlan::BackwardPlan(const Spec& spec, const Operands& operands, const Arriving& arriving,
                           const Gradients& gradients)
    : spec_(spec), form_(operands), arriving_form_(arriving), gradients_form_(gradients) {
  check_backward(spec, operands, arriving, gradients);
  period_ = residue_period(spec_, form_, gradients);
  if (period_ > 0) {  // planned as the largest of the classes
    form_ = residue_form(form_, period_);
    arriving_form_ = residue_form(arriving, period_);
    gradients_form_ = residue_form(gradients, period_);
  }
  const BoundMask mask = form_mask();
  tiling_ =
      kernel::choose_backward_tiling(lower_backward(spec_, form_, mask, arriving_form_, gradients_form_));
}

BoundMask BackwardPlan::form_mask() const {
  return period_ > 0 ? BoundMask({}, form_.q.size[2], form_.k.size[2]) : bind_form(spec_, form_);
}

size_t BackwardPlan::workspace_bytes(int workers) const {
  const BoundMask mask = form_mask();
  return kernel::backward_workspace(lower_backward(spec_, form_, mask, arriving_form_, gradients_form_),
                                    tiling_, workers);
}

void BackwardPlan::run(const Operands& operands, const Arriving& arriving, const Gradients& gradients,
                       std::span<std::byte> workspace, kernel::Parallel& parallel) const {
  for (int64_t number = 0; number < period_; ++number) {
    const ResidueClass one(spec_, operands, period_, number);
    kernel::backward(
        lower_backward(spec_, one.operands, one.mask, one.arriving(arriving), one.gradients(gradients)),
        tiling_, workspace, parallel);
  }
  if (period_ > 0) return;
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
