// GGUF's block types, expanded to floats. Called through dequantize() of tensor.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "regard/io/tensor.h"

namespace regard::io {

// `blocks` blocks of `type`, a block type, from `in` (unaligned) to blocks * block_elements(type) floats. The
// order of the roundings is that of ggml's reference, so that the results agree bit for bit.
void dequantize_blocks(Type type, const std::byte* in, int64_t blocks, float* out);

// Six-bit scale and minimum of each of eight groups of 32, packed in 12 bytes: groups 0 to 3 in the low six
// bits of bytes 0-3 (scales) and 4-7 (minima); groups 4 to 7 in the nibbles of bytes 8-11 with their upper
// two bits on top of bytes 0-7.
struct ScaleAndMinimum {
  int scale;
  int minimum;
};
ScaleAndMinimum unpack_scale(const uint8_t* packed, int group);

}  // namespace regard::io
