#pragma once

#include <cstdint>
#include <vector>

#include "regard/kernel/parallel.h"

// Norms over rows of float32, forward and backward, each row read while it lies in the first-level cache. The
// bits are the same for any number of threads.
namespace regard::kernel {

// layer: (x - mean) / sqrt(variance + epsilon) (Ba et al. 2016, arXiv 1607.06450).
// rms: x / sqrt(mean(x^2) + epsilon) (Zhang and Sennrich 2019, arXiv 1910.07467).
// harvard: (x - mean) / (deviation + epsilon), with n - 1 under the deviation: the flavour of "The Annotated
// Transformer"; at small widths it differs from `layer` in the third digit.
enum class NormForm : uint8_t { layer, rms, harvard };

// rows of n numbers, one after the other; weight and bias [n] may be null.
struct NormRows {
  NormForm form = NormForm::layer;
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t n = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
  double epsilon = 1e-5;
};

// out: as x.
void norm(const NormRows& call, float* out, Parallel& parallel);

// grad: of out, as x. grad_x: as x. sums: [2 n], of the weight, then of the bias: sums over rows in an order
// that the shape alone decides.
void norm_backward(const NormRows& call, const float* grad, float* grad_x, std::vector<double>& sums,
                   Parallel& parallel);

}  // namespace regard::kernel
