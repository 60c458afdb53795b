#pragma once

#include <cstdint>

#include "regard/kernel/quantized.h"

namespace regard::kernel {

// Inputs as the products take them: for each block of 32 columns int8 values, and floats: the scale, then for
// each group of weights the sum of its inputs (scale * sum of values), times - offset() where the format has
// no minimum. `wide`: each four values as halves of 16 bits in the order 0, 2, 1, 3.
struct RoundedRows {
  int8_t* values = nullptr;
  float* numbers = nullptr;
  int64_t value_stride = 0;   // bytes of a row
  int64_t number_stride = 0;  // floats of a row
  int64_t block_numbers = 0;  // floats of a block
  bool wide = false;

  int64_t block_bytes() const { return QuantizedLayout::kBlock * (wide ? 2 : 1); }
  float* numbers_of(int64_t row, int64_t block) const {
    return numbers + row * number_stride + block * block_numbers;
  }
};

}  // namespace regard::kernel
