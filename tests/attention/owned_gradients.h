#pragma once

#include <vector>

#include "regard/attention/backward.h"
#include "tests/attention/problem.h"

namespace regard::testing {

// Gradients that own their memory, each of the sizes of its operand; those of q, k and v are of `type`.
struct OwnedGradients {
  Tensor q, k, v, bias, slopes, sinks;

  explicit OwnedGradients(const attention::Operands& call, kernel::DType type = kernel::DType::f32)
      : q(type, call.q.size),
        k(type, call.k.size),
        v(type, call.v.size),
        bias(kernel::DType::f32, call.bias.size),
        slopes(kernel::DType::f32, call.slopes.size),
        sinks(kernel::DType::f32, call.sinks.size) {}

  // All that there are.
  attention::Gradients views() {
    attention::Gradients views{q.view(), k.view(), v.view(), {}, {}, {}};
    if (bias.size() != kernel::Extents{}) views.bias = bias.as<float>();
    if (slopes.size() != kernel::Extents{}) views.slopes = slopes.as<float>();
    if (sinks.size() != kernel::Extents{}) views.sinks = sinks.as<float>();
    return views;
  }
};

inline std::vector<double> to_doubles(const Tensor& tensor) {
  const std::vector<float> values = tensor.values();
  return {values.begin(), values.end()};
}

}  // namespace regard::testing
