#pragma once

#include <ATen/core/Tensor.h>

#include "regard/kernel/norm.h"

namespace regard::autograd {

// x [..., n] normalised over the last axis, times weight [n], plus bias [n] (each may be undefined). float32
// (kernel/norm.h) or float64. The gradients of weight and bias are sums over rows in an order that the shape
// alone decides: the same bits for any number of threads, which libtorch's layer_norm does not give. Throws
// std::invalid_argument for other types and shapes; a second derivative throws.
at::Tensor normalize(kernel::NormForm kind, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias, double epsilon);

}  // namespace regard::autograd
