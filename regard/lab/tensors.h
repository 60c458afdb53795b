#pragma once

#include <ATen/ATen.h>

#include "regard/lab/draws.h"

namespace regard::lab {

// A tensor of N(0, deviation^2), the same on every machine.
inline at::Tensor normal(Draws& draws, at::IntArrayRef shape, at::ScalarType type = at::kDouble,
                         double deviation = 1) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::tensor(draws.normals(count, deviation), at::kDouble).view(shape).to(type);
}

inline double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

}  // namespace regard::lab
