// GGUF's block types, expanded to floats. Called through dequantize() of tensor.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "regard/io/tensor.h"

namespace regard::io {

// `blocks` blocks of `type`, a block type, from `in` (unaligned) to blocks * block_elements(type) floats. The
// order of the roundings is that of ggml's reference, so that the results agree bit for bit.
void dequantize_blocks(Type type, const std::byte* in, int64_t blocks, float* out);

}  // namespace regard::io
