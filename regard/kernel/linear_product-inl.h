// Small products of matrices that lie in the L1 and L2 caches: whole register tiles over row-major operands.
#if defined(REGARD_KERNEL_LINEAR_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_LINEAR_PRODUCT_INL_H_
#undef REGARD_KERNEL_LINEAR_PRODUCT_INL_H_
#else
#define REGARD_KERNEL_LINEAR_PRODUCT_INL_H_
#endif

#include <hwy/cache_control.h>

#include "regard/kernel/linear_layout.h"
#include "regard/kernel/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Accumulators of kRows rows and kWidth vectors: a full tile, or the last columns where one vector holds
// them.
template <int64_t kWidth>
struct Sums {
  HWY_INLINE Sums() {}
  Vec v[kRows][kWidth];
};

template <int64_t kWidth>
HWY_INLINE void clear(D d, Sums<kWidth>& sums) {
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int64_t n = 0; n < kWidth; ++n) sums.v[r][n] = hn::Zero(d);
}

// Left operands, at their first row. By depth: element (row, k) is data[k * ld + row]. By row: a matrix of
// kChunkLd columns, data[row * kChunkLd + k].
struct ByDepth {
  const float* HWY_RESTRICT data;
  int64_t ld;
};
struct ByRow {
  const float* HWY_RESTRICT data;
};

HWY_INLINE float left_at(const ByDepth& a, const float* at, int64_t row) {
  (void)a;
  return at[row];
}
HWY_INLINE float left_at(const ByRow& a, const float* at, int64_t row) {
  (void)a;
  return at[row * kChunkLd];
}
HWY_INLINE int64_t left_step(const ByDepth& a) {
  return a.ld;
}
HWY_INLINE int64_t left_step(const ByRow& a) {
  (void)a;
  return 1;
}

// sums += left * right over `depth`, in order: an element's sum does not depend on its place in the tile.
// right: row-major, ld floats a row, at the tile's first column.
template <int64_t kWidth, class Left>
HWY_INLINE void accumulate(D d, const Left& left, const float* HWY_RESTRICT right, int64_t ld, int64_t depth,
                           Sums<kWidth>& sums) {
  const float* at = left.data;
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k) {
    Vec row[kWidth];
#pragma GCC unroll 16
    for (int64_t n = 0; n < kWidth; ++n) row[n] = hn::Load(d, right + n * kLanes);
#pragma GCC unroll 16
    for (int64_t r = 0; r < kRows; ++r) {
      const Vec x = hn::Set(d, left_at(left, at, r));
#pragma GCC unroll 16
      for (int64_t n = 0; n < kWidth; ++n) sums.v[r][n] = hn::MulAdd(x, row[n], sums.v[r][n]);
    }
    at += left_step(left);
    right += ld;
  }
}

// fn(width, row, column) for the tiles of a matrix; width: vectors, as an integral constant.
template <class F>
HWY_INLINE void each_tile(int64_t rows, int64_t columns, const F& fn) {
  for (int64_t n = 0; n < columns; n += kCols) {
    const bool narrow = kVecs == 2 && columns - n <= kLanes;
    for (int64_t m = 0; m < rows; m += kRows) {
      if (narrow)
        fn(std::integral_constant<int64_t, 1>(), m, n);
      else
        fn(std::integral_constant<int64_t, kVecs>(), m, n);
    }
  }
}

// to[row][column] = sums, at the tile's first element.
template <int64_t kWidth>
HWY_INLINE void store(D d, const Sums<kWidth>& sums, float* HWY_RESTRICT to, int64_t ld) {
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int64_t n = 0; n < kWidth; ++n) hn::Store(sums.v[r][n], d, to + r * ld + n * kLanes);
}

template <int64_t kWidth>
HWY_INLINE void load(D d, const float* HWY_RESTRICT from, int64_t ld, Sums<kWidth>& sums) {
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int64_t n = 0; n < kWidth; ++n) sums.v[r][n] = hn::Load(d, from + r * ld + n * kLanes);
}

// Each row of sums times its factor.
template <int64_t kWidth>
HWY_INLINE void scale_rows(D d, const float* HWY_RESTRICT factors, Sums<kWidth>& sums) {
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int64_t n = 0; n < kWidth; ++n) sums.v[r][n] = hn::Mul(sums.v[r][n], hn::Set(d, factors[r]));
}

// Each element times its factor.
template <int64_t kWidth>
HWY_INLINE void scale_elements(D d, const float* HWY_RESTRICT factors, int64_t ld, Sums<kWidth>& sums) {
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int64_t n = 0; n < kWidth; ++n)
      sums.v[r][n] = hn::Mul(sums.v[r][n], hn::Load(d, factors + r * ld + n * kLanes));
}

HWY_INLINE bool all_finite(const float* HWY_RESTRICT from, int64_t ld, int64_t rows, int64_t columns) {
  const D d;
  const DI di;
  auto largest = hn::Zero(di);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t c = 0;
    for (; c + kLanes <= columns; c += kLanes)
      largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::Load(d, from + r * ld + c))));
    for (; c < columns; ++c)
      if (!(from[r * ld + c] - from[r * ld + c] == 0.0F)) return false;
  }
  return hn::AllTrue(di, hn::Lt(largest, hn::Set(di, 0x7F800000)));
}

// Rows [position, position + count) of one head, converted, as to[row][feature]. Those `ahead` of them, which
// come next, are fetched meanwhile: rows of one head may lie far apart.
HWY_INLINE void load_rows(const ConstAnyView& from, int64_t batch, int64_t head, int64_t position,
                          int64_t count, float* HWY_RESTRICT to, int64_t ld, int64_t ahead) {
  with_type(from.dtype, [&](auto element) HWY_ATTR {
    const auto view = from.as<const decltype(element)>();
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(element));
    for (int64_t r = 0; r < count; ++r) {
      load_row(view.at(batch, head, position + r), view.stride[3], view.size[3], 1.0F, to + r * ld);
      const int64_t later = position + r + ahead;
      if (later < 0 || later >= view.size[2] || view.stride[3] != 1) continue;
      const auto* next = view.at(batch, head, later);
      for (int64_t f = 0; f < view.size[3]; f += kLine) hwy::Prefetch(next + f);
    }
  });
}

// Fetches rows that are going to be written.
HWY_INLINE void expect_rows(const AnyView& to, int64_t batch, int64_t head, int64_t position, int64_t count) {
  if (!to || to.stride[3] != 1) return;
  const int64_t width = bytes(to.dtype);
  const auto* at = static_cast<const char*>(to.data) +
                   (batch * to.stride[0] + head * to.stride[1] + position * to.stride[2]) * width;
  for (int64_t r = 0; r < count; ++r, at += to.stride[2] * width)
    for (int64_t f = 0; f < to.size[3] * width; f += 64) __builtin_prefetch(at + f, 1);
}

// Rows of one head from from[row][feature], converted.
HWY_INLINE void store_rows(const AnyView& to, int64_t batch, int64_t head, int64_t position, int64_t count,
                           const float* HWY_RESTRICT from, int64_t ld, const float* HWY_RESTRICT factors) {
  for (int64_t r = 0; r < count; ++r)
    store_out<kCols>(to, batch, head, position + r, factors == nullptr ? 1.0F : factors[r], from + r * ld,
                     kCols);
}

HWY_INLINE float dot(D d, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t n) {
  Vec sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  float rest = 0.0F;
  for (; i < n; ++i) rest += a[i] * b[i];
  return sum_of_lanes(d, sum) + rest;
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
