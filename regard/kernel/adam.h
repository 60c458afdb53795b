#pragma once

#include <cstdint>
#include <vector>

#include "regard/kernel/parallel.h"

namespace regard::kernel {

// One step of Adam (Kingma and Ba 2015, algorithm 1) or AdamW (Loshchilov and Hutter 2019, algorithm 2):
//   g = scale * gradient (+ coupled_decay * p: Adam's weight decay)
//   p = p * keep          (1 - rate * weight_decay: AdamW's)
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   p = p - step m / (sqrt(v) / root + epsilon)
// with step = rate / (1 - beta1^t) and root = sqrt(1 - beta2^t).
struct AdamStep {
  float scale = 1;
  float coupled_decay = 0;
  float keep = 1;
  float beta1 = 0.9F;
  float rest1 = 0.1F;  // 1 - beta1, in which float32 would lose digits
  float beta2 = 0.999F;
  float rest2 = 0.001F;
  float step = 0;
  float root = 1;
  float epsilon = 1e-8F;
};

// One parameter of n numbers: what it is, its gradient and its memory.
struct AdamSpan {
  AdamStep how;
  float* value = nullptr;
  const float* gradient = nullptr;
  float* first = nullptr;   // m
  float* second = nullptr;  // v
  int64_t n = 0;
};

// All of them in one pass over memory. The bits are the same for any number of threads.
void adam(const std::vector<AdamSpan>& spans, Parallel& parallel);

struct ConstSpan {
  const float* data = nullptr;
  int64_t n = 0;
};

// The sum of all squares, summed in an order that the sizes alone decide.
double sum_of_squares(const std::vector<ConstSpan>& spans, Parallel& parallel);

}  // namespace regard::kernel
