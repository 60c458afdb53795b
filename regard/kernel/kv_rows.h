#pragma once

#include <cstdint>

#include "regard/kernel/pages.h"
#include "regard/kernel/view.h"

// Single rows of a cache, converted: what a cache does once for each position.
namespace regard::kernel {

// A row of a view as float32.
void widen_row(const ConstAnyView& view, int64_t batch, int64_t head, int64_t position, float* to);

// Stores n numbers as a cache holds them and returns their scale. bf16, f16: rounded to nearest even, 1. i8:
// symmetric, the largest magnitude becomes 127; with a NaN or infinity among them the scale is NaN, so that
// whoever sees the row learns of it.
float store_row(CacheType type, const float* from, int64_t n, void* to);

// The n numbers that are stored there.
void load_row(CacheType type, const void* from, float scale, int64_t n, float* to);

}  // namespace regard::kernel
