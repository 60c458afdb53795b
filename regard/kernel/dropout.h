#pragma once

#include <cstdint>

#include "regard/kernel/parallel.h"

namespace regard::kernel {

// Which weights dropout keeps: a pure function of (seed, offset, batch, query head, i, j), so forward and
// backward agree under any tiling and on any target. Philox4x32-10 (Salmon et al. 2011) with the counter (j
// div 8, i, head, batch) gives eight 16-bit draws, the low half of a word before its high half; column j
// takes draw j mod 8 and is dropped when the draw is below the threshold. The key is seed + offset *
// 0x9E3779B97F4A7C15.
struct Dropout {
  uint32_t threshold = 0;  // drops with probability threshold / 65536, below 65536; 0: no dropout
  uint64_t seed = 0;
  uint64_t offset = 0;
  int64_t first_batch = 0;  // batch entry b counts as b + first_batch: documents run one by one keep theirs

  explicit operator bool() const { return threshold != 0; }
  // What a kept weight is multiplied by.
  float scale() const { return 65536.0F / static_cast<float>(65536 - threshold); }
  uint64_t key() const { return seed + offset * 0x9E3779B97F4A7C15ULL; }
};

// Bit c: pair (row, key + c) is kept; columns <= 64, the bits beyond are 0. The plain twin of what kernels
// do.
uint64_t kept(const Dropout& dropout, int64_t batch, int64_t head, int64_t row, int64_t key, int64_t columns);

// Dropout of an array: y[i] = x[i] scale() where number i is kept, else 0, also where x[i] is no number.
// Number i stands in row i / 2^32, column i % 2^32 of batch entry and head 0. y may be x. The bits are the
// same for any number of threads; doubles take the plain way.
void drop_elements(const Dropout& dropout, const float* x, int64_t count, float* y, Parallel& parallel);
void drop_elements(const Dropout& dropout, const double* x, int64_t count, double* y, Parallel& parallel);

}  // namespace regard::kernel
