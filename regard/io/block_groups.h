// The numbers inside GGUF's block types: whole numbers in groups that share a scale.
#pragma once

#include <cstdint>
#include <optional>

#include "regard/io/tensor.h"

namespace regard::io {

// value = scale * q + minimum, or scale * (q - 2^(bits - 1)) without a minimum; `group` neighbours share a
// scale.
struct BlockForm {
  int bits = 0;
  int64_t group = 0;
  bool has_minimum = false;
};

// Nothing for types that are no blocks.
std::optional<BlockForm> block_form(Type type);

// A row of a tensor in blocks: values [row_elements], scales and minima [row_elements / group]; minima are
// left alone where the form has none. The formula of the form gives what dequantize() gives, bit for bit.
// Throws std::invalid_argument for a tensor without blocks or a row outside it.
void read_groups(const Tensor& tensor, int64_t row, uint8_t* values, float* scales, float* minima);

}  // namespace regard::io
