#pragma once

#include "regard/attention/linear.h"

// For the room's own use: check() in its two halves, and what the backward needs.
namespace regard::attention {

// Sizes, strides, types, what goes together; no look at data.
void check_linear_form(const LinearSpec& spec, const LinearOperands& operands);

// The numbers in key_lengths.
void check_linear_data(const LinearOperands& operands);

void check_linear_backward(const LinearSpec& spec, const LinearOperands& operands,
                           const LinearArriving& arriving, const LinearGradients& gradients);

}  // namespace regard::attention
