// The two products of decoding, on keys and values as they lie in memory: every element is read once from
// DRAM and used for all query rows of its head.
#if defined(REGARD_KERNEL_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_DECODE_INL_H_
#undef REGARD_KERNEL_DECODE_INL_H_
#else
#define REGARD_KERNEL_DECODE_INL_H_
#endif

#include "regard/kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// The first n < kLanes elements, the others 0; reads nothing behind them.
template <class T>
HWY_INLINE Vec load_first(D d, const T* p, int64_t n) {
  HWY_ALIGN float row[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) row[i] = i < n ? to_float(p[i]) : 0.0F;
  return hn::Load(d, row);
}

// to[0 .. 4) = the sums of the lanes of a, b, c, e.
HWY_INLINE void store_sums(D d, Vec a, Vec b, Vec c, Vec e, float* to) {
#if HWY_TARGET == HWY_SCALAR
  hn::Store(a, d, to);
  hn::Store(b, d, to + 1);
  hn::Store(c, d, to + 2);
  hn::Store(e, d, to + 3);
#else
  const hn::Repartition<uint64_t, D> d64;
  const auto ab = hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce = hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  const Vec blocks = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, ab, ce)),
                             hn::BitCast(d, hn::InterleaveUpper(d64, ab, ce)));
#if HWY_TARGET == HWY_AVX3
  const hn::Half<D> half;
  const hn::Half<decltype(half)> quarter;
  const auto folded = hn::Add(hn::LowerHalf(half, blocks), hn::UpperHalf(half, blocks));
  hn::StoreU(hn::Add(hn::LowerHalf(quarter, folded), hn::UpperHalf(quarter, folded)), quarter, to);
#elif HWY_TARGET == HWY_AVX2
  const hn::Half<D> half;
  hn::StoreU(hn::Add(hn::LowerHalf(half, blocks), hn::UpperHalf(half, blocks)), half, to);
#else
  hn::StoreU(blocks, d, to);
#endif
#endif
}

// acc[r][j] += q[r] * k[j] over features [begin, end), lane by lane.
template <int kQ, class T>
HWY_INLINE void dot_lanes(const float* HWY_RESTRICT q, int64_t q_stride, const T* const k[4], int64_t begin,
                          int64_t end, Vec (&acc)[kQ][4]) {
  const D d;
  int64_t f = begin;
  for (; f + kLanes <= end; f += kLanes) {
    const Vec a = load(d, k[0] + f);
    const Vec b = load(d, k[1] + f);
    const Vec c = load(d, k[2] + f);
    const Vec e = load(d, k[3] + f);
#pragma GCC unroll 4
    for (int r = 0; r < kQ; ++r) {
      const Vec x = hn::Load(d, q + r * q_stride + f);
      acc[r][0] = hn::MulAdd(x, a, acc[r][0]);
      acc[r][1] = hn::MulAdd(x, b, acc[r][1]);
      acc[r][2] = hn::MulAdd(x, c, acc[r][2]);
      acc[r][3] = hn::MulAdd(x, e, acc[r][3]);
    }
  }
  if (f == end) return;
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const Vec last = load_first(d, k[j] + f, end - f);
#pragma GCC unroll 4
    for (int r = 0; r < kQ; ++r) acc[r][j] = hn::MulAdd(hn::Load(d, q + r * q_stride + f), last, acc[r][j]);
  }
}

// scores[r * score_stride + j] = q[r] . k[j] for kQ rows of q (zero-padded to kLanes) and four keys.
template <int kQ, class T>
HWY_INLINE void dot_block(const float* HWY_RESTRICT q, int64_t q_stride, const T* const k[4],
                          int64_t features, float* HWY_RESTRICT scores, int64_t score_stride) {
  const D d;
  Vec acc[kQ][4];
#pragma GCC unroll 4
  for (int r = 0; r < kQ; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) acc[r][j] = hn::Zero(d);
  if constexpr (kLanes > 1) {
    dot_lanes<kQ>(q, q_stride, k, 0, features, acc);
  } else {
    // Without lanes one sum takes all features; in parts it keeps the error bound at any head size.
    for (int64_t f = 0; f < features; f += 64) {
      Vec part[kQ][4];
      for (int r = 0; r < kQ; ++r)
        for (int j = 0; j < 4; ++j) part[r][j] = hn::Zero(d);
      dot_lanes<kQ>(q, q_stride, k, f, HWY_MIN(f + 64, features), part);
      for (int r = 0; r < kQ; ++r)
        for (int j = 0; j < 4; ++j) acc[r][j] = hn::Add(acc[r][j], part[r][j]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kQ; ++r)
    store_sums(d, acc[r][0], acc[r][1], acc[r][2], acc[r][3], scores + r * score_stride);
}

// Consecutive values, in one or two places: the first ones `first`, the others `second`; rows `stride` apart.
template <class T>
struct ValueRows {
  const T* first;
  int64_t first_keys;
  const T* second;
  int64_t keys;  // in all
  int64_t stride;
};

// acc[r][...] += weights[r][key] * v[key][f ...] over the keys of one place.
template <int kR, int kV, class T>
HWY_INLINE void weigh_keys(const float* HWY_RESTRICT weights, int64_t weight_stride, const T* v,
                           int64_t v_stride, int64_t keys, Vec (&acc)[kR][kV]) {
  const D d;
  for (int64_t key = 0; key < keys; ++key) {
    Vec row[kV];
#pragma GCC unroll 8
    for (int n = 0; n < kV; ++n) row[n] = load(d, v + key * v_stride + n * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kR; ++r) {
      const Vec x = hn::Set(d, weights[r * weight_stride + key]);
#pragma GCC unroll 8
      for (int n = 0; n < kV; ++n) acc[r][n] = hn::MulAdd(x, row[n], acc[r][n]);
    }
  }
}

// A sum of few keys of its own is added to the running one: the error of long rows stays small.
// out[r][0 .. kV * kLanes) += sum over keys of weights[r][key] * v[key][f ...].
template <int kR, int kV, class T>
HWY_INLINE void weigh_block(const float* HWY_RESTRICT weights, int64_t weight_stride, const ValueRows<T>& v,
                            int64_t f, float* HWY_RESTRICT out, int64_t out_stride) {
  const D d;
  Vec acc[kR][kV];
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r)
#pragma GCC unroll 8
    for (int n = 0; n < kV; ++n) acc[r][n] = hn::Zero(d);
  weigh_keys<kR, kV>(weights, weight_stride, v.first + f, v.stride, v.first_keys, acc);
  if (v.first_keys < v.keys)
    weigh_keys<kR, kV>(weights + v.first_keys, weight_stride, v.second + f, v.stride, v.keys - v.first_keys,
                       acc);
#pragma GCC unroll 8
  for (int r = 0; r < kR; ++r)
#pragma GCC unroll 8
    for (int n = 0; n < kV; ++n) {
      float* to = out + r * out_stride + f + n * kLanes;
      hn::Store(hn::Add(hn::Load(d, to), acc[r][n]), d, to);
    }
}

// All features of kR rows. kV: vectors per step, so that kR * kV accumulators fit in registers.
template <int kR, int kV, class T>
HWY_INLINE void weigh_rows(const float* HWY_RESTRICT weights, int64_t weight_stride, const ValueRows<T>& v,
                           int64_t features, float* HWY_RESTRICT out, int64_t out_stride) {
  const D d;
  int64_t f = 0;
  for (; f + kV * kLanes <= features; f += kV * kLanes)
    weigh_block<kR, kV>(weights, weight_stride, v, f, out, out_stride);
  if constexpr (kV > 2)
    for (; f + 2 * kLanes <= features; f += 2 * kLanes)
      weigh_block<kR, 2>(weights, weight_stride, v, f, out, out_stride);
  for (; f + kLanes <= features; f += kLanes)
    weigh_block<kR, 1>(weights, weight_stride, v, f, out, out_stride);
  if (f == features) return;
  Vec acc[kR];
  for (int r = 0; r < kR; ++r) acc[r] = hn::Zero(d);
  for (int64_t key = 0; key < v.keys; ++key) {
    const T* at = key < v.first_keys ? v.first + key * v.stride : v.second + (key - v.first_keys) * v.stride;
    const Vec row = load_first(d, at + f, features - f);
    for (int r = 0; r < kR; ++r)
      acc[r] = hn::MulAdd(hn::Set(d, weights[r * weight_stride + key]), row, acc[r]);
  }
  for (int r = 0; r < kR; ++r) {
    float* to = out + r * out_stride + f;
    hn::Store(hn::Add(hn::Load(d, to), acc[r]), d, to);
  }
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
