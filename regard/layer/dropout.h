#pragma once

#include <ATen/core/Tensor.h>

#include "regard/attention/spec.h"
#include "regard/autograd/attention.h"
#include "regard/layer/context.h"

// Dropout whose masks are known beforehand (Srivastava et al. 2014): which numbers a call drops depends on
// context.dropout_seed, on how many calls of dropout came before it in this pass and on the number's place
// alone, never on threads or time. A pass that is made again from the same dropout_seed and dropout_calls
// drops the same numbers. Only where context.training is set; a probability of 0 makes no call.
namespace regard::layer {

// x with each number 0 with the probability given (rounded to 1/65536) and divided by 1 - that otherwise.
// float32 or float64. The backward draws the same numbers again: nothing is kept for it. Throws
// std::invalid_argument for a probability outside [0, 1) or another type.
at::Tensor dropout(const at::Tensor& x, double probability, Context& context);

// The same of attention weights, before an attention() with spec and extras: one call.
void drop_weights(double probability, Context& context, attention::Spec& spec,
                  autograd::AttentionExtras& extras);

}  // namespace regard::layer
