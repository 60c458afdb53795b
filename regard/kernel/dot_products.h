#pragma once

#include <cstddef>

#include "regard/kernel/quantized.h"

namespace regard::kernel {

// Whether the processor multiplies and adds four bytes at once (AVX-512 VNNI, AVX-VNNI, NEON's dot product)
// in the target in use, and was found to give the bits that pairs of products give.
bool has_dot_products();

// quantized_product() with or without them.
void quantized_product(const QuantizedProduct& product, bool dot, std::byte* workspace, Parallel& parallel);

}  // namespace regard::kernel
