#pragma once

#include <cstdint>

#include "regard/kernel/backward.h"

namespace regard::kernel {

// Sums of a gradient in panels of `width` features: feature f of row r at [f / width][rows][width].
struct PanelSums {
  float* data = nullptr;  // of the first row meant; nullptr: not wanted
  int64_t rows = 0;       // from one panel to the next
  int64_t width = 0;

  float& operator()(int64_t row, int64_t feature) const {
    return data[(feature / width * rows + row) * width + feature % width];
  }
};

// Backward of one block of pairs, visible ones only, one at a time in float64: for blocks in which a NaN or
// an infinity must not reach a row that does not see it. Adds d product * k to grad_q, d product * q *
// q_factor to grad_k. delta: grad_out . out - grad_lse of the block's rows.
struct PlainPair {
  int64_t batch, head;  // query head
  int64_t row, rows;
  int64_t key, keys;
  const float* delta;
  double q_factor;
  PanelSums grad_q, grad_k, grad_v;
  double* slope_sum;  // of the head; nullptr: not wanted
};
void add_plain_pair(const Backward& problem, const PlainPair& pair);

}  // namespace regard::kernel
