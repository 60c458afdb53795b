#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace regard::autograd {

// layer:   (x - mean) / sqrt(variance + epsilon)                    (Ba et al. 2016, arXiv 1607.06450)
// rms:     x / sqrt(mean(x^2) + epsilon)                            (Zhang and Sennrich 2019, arXiv
// 1910.07467) harvard: (x - mean) / (deviation + epsilon), with n - 1 under the deviation: the flavour of
// "The Annotated
//          Transformer"; at small widths it differs from `layer` in the third digit
enum class Normalization : uint8_t { layer, rms, harvard };

// x [..., n] normalised over the last axis, times weight [n], plus bias [n] (each may be undefined). float32
// (kernel/norm.h) or float64. The gradients of weight and bias are sums over rows in an order that the shape
// alone decides: the same bits for any number of threads, which libtorch's layer_norm does not give. Throws
// std::invalid_argument for other types and shapes; a second derivative throws.
at::Tensor normalize(Normalization kind, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias, double epsilon);

}  // namespace regard::autograd
