#pragma once

#include <functional>
#include <vector>

#include "regard/attention/backward.h"
#include "regard/attention/bound_mask.h"
#include "regard/attention/observe.h"
#include "regard/attention/spec.h"
#include "regard/kernel/backward.h"
#include "regard/kernel/forward.h"

// From what a call means to what kernels take. For the room's own use.
namespace regard::attention {

// 1 / sqrt(Dk) unless the spec names a scale.
double effective_scale(const Spec& spec, const Operands& operands);

// The probability that dropout uses, in 65536ths.
uint32_t dropout_threshold(double probability);

// The mask of a call, with its data.
BoundMask bind_mask(const Spec& spec, const Operands& operands);

// The mask without its data: what a plan may know.
BoundMask bind_form(const Spec& spec, const Operands& form);

// The kernel's problem. It borrows the mask.
kernel::Forward lower(const Spec& spec, const Operands& operands, const BoundMask& mask);

kernel::Backward lower_backward(const Spec& spec, const Operands& operands, const BoundMask& mask,
                                const Arriving& arriving, const Gradients& gradients);

// Throws std::invalid_argument unless lse is [B, Hq, Lq, 1] with data where there are rows.
void check_lse(const Operands& operands, View<const float> lse);

// What a Plan does not look at: the numbers in key_lengths.
void check_data(const Operands& operands);

// What a BackwardPlan needs: the form of everything, without a look at data.
void check_backward(const Spec& spec, const Operands& operands, const Arriving& arriving,
                    const Gradients& gradients);

// A tile of one batch entry and query head.
struct TileRange {
  int64_t batch, head, row, rows, key, keys;
};

// weights() and logits() of a lowered problem, whose operands are checked. lse is not read for logits.
std::vector<float> tile(const kernel::Forward& problem, const Operands& operands, View<const float> lse,
                        const TileRange& range, bool as_logits);

// observe() of a lowered problem. few_rows fills out and lse where the decode kernel would have;
// distance_offset as in kernel::Observation.
Observation observe(const Observe& what, const Spec& spec, kernel::Forward problem, int64_t distance_offset,
                    const std::function<void()>& few_rows, kernel::Parallel& parallel);

// Product of the sizes; throws std::invalid_argument where it is 2^60 or more. `what` names the array.
int64_t element_count(const char* what, const kernel::Extents& size);

// An axis of size 1 repeats along `size`: the same elements, with stride 0 there.
template <class T>
View<T> broadcast(View<T> view, const kernel::Extents& size) {
  for (int axis = 0; axis < 4; ++axis) {
    if (view.size[axis] == 1 && size[axis] != 1) view.stride[axis] = 0;
    view.size[axis] = size[axis];
  }
  return view;
}

}  // namespace regard::attention
