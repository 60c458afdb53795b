// The register tile: one product kernel for both halves of attention. q k^T and p v differ in their operands
// only.
#if defined(REGARD_KERNEL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_TILE_INL_H_
#undef REGARD_KERNEL_TILE_INL_H_
#else
#define REGARD_KERNEL_TILE_INL_H_
#endif

#include "regard/kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Accumulators of a tile. Every loop over them is unrolled, so they live in registers.
struct Accumulators {
  // Written out: NEON's vectors have constructors, and an implicit one is compiled without the target's
  // attributes.
  HWY_INLINE Accumulators() {}
  Vec v[kRows][kVecs];
};

HWY_INLINE void zero(D d, Accumulators& acc) {
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int64_t n = 0; n < kVecs; ++n) acc.v[r][n] = hn::Zero(d);
}

// acc[r][n] += sum over k < depth of a[r * kRowStep + k * kDepthStep] * b[k * kCols + n], k ascending: an
// element's sum does not depend on its row or column in the tile. By default a is a stored tile (row-major
// [kRows][kCols]) and depth <= kCols; with the steps exchanged a is read transposed.
template <int64_t kRowStep = kCols, int64_t kDepthStep = 1>
HWY_INLINE void multiply_add(D d, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t depth,
                             Accumulators& acc) {
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k) {
    Vec row[kVecs];
#pragma GCC unroll 4
    for (int64_t n = 0; n < kVecs; ++n) row[n] = hn::Load(d, b + k * kCols + n * kLanes);
#pragma GCC unroll 16
    for (int64_t r = 0; r < kRows; ++r) {
      const Vec x = hn::Set(d, a[r * kRowStep + k * kDepthStep]);
#pragma GCC unroll 4
      for (int64_t n = 0; n < kVecs; ++n) acc.v[r][n] = hn::MulAdd(x, row[n], acc.v[r][n]);
    }
  }
}

// kRowStep: floats from one row of the tile to the next.
template <int64_t kRowStep = kCols>
HWY_INLINE void store(D d, const Accumulators& acc, float* HWY_RESTRICT tile) {
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int64_t n = 0; n < kVecs; ++n) hn::Store(acc.v[r][n], d, tile + r * kRowStep + n * kLanes);
}

// tile += acc.
template <int64_t kRowStep = kCols>
HWY_INLINE void add_to(D d, const Accumulators& acc, float* HWY_RESTRICT tile) {
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int64_t n = 0; n < kVecs; ++n) {
      float* at = tile + r * kRowStep + n * kLanes;
      hn::Store(hn::Add(hn::Load(d, at), acc.v[r][n]), d, at);
    }
}

// Features whose products are summed in one go. Longer heads are summed in parts: one sum of 576 products
// would use up the error bound.
constexpr int64_t kFeatureChunk = 128;

// acc = q k^T over features [begin, min(begin + kFeatureChunk, features)). q: [Dk / kCols][kRows][kCols] with
// q_rows rows from one kCols features to the next, keys: a panel [Dk][kCols].
HWY_INLINE void multiply_features(D d, const float* HWY_RESTRICT q, int64_t q_rows,
                                  const float* HWY_RESTRICT keys, int64_t begin, int64_t features,
                                  Accumulators& acc) {
  zero(d, acc);
  const int64_t end = HWY_MIN(begin + kFeatureChunk, features);
  int64_t f = begin;
  for (; f + kCols <= end; f += kCols) multiply_add(d, q + f * q_rows, keys + f * kCols, kCols, acc);
  if (f < end) multiply_add(d, q + f * q_rows, keys + f * kCols, end - f, acc);
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
