#include "regard/kernel/pointwise.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/pointwise.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Full vectors, then the rest in a vector filled up with zeros: the same arithmetic for every element.
template <class Step>
HWY_INLINE void each_vector(int64_t count, Step&& step) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) step(i, kLanes);
  if (i < count) step(i, count - i);
}

HWY_INLINE Vec load_some(const float* from, int64_t count) {
  const D d;
  if (count == kLanes) return hn::LoadU(d, from);
  HWY_ALIGN float some[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) some[i] = from[i];
  return hn::Load(d, some);
}

HWY_INLINE void store_some(Vec v, int64_t count, float* to) {
  const D d;
  if (count == kLanes) return hn::StoreU(v, d, to);
  HWY_ALIGN float some[kLanes];
  hn::Store(v, d, some);
  for (int64_t i = 0; i < count; ++i) to[i] = some[i];
}

void RmsNorm(const float* x, int64_t features, const float* weight, float epsilon, float* out) {
  const D d;
  Vec sum = hn::Zero(d);
  each_vector(features, [&](int64_t i, int64_t n) HWY_ATTR {
    const Vec v = load_some(x + i, n);
    sum = hn::MulAdd(v, v, sum);
  });
  const Vec factor =
      hn::Set(d, 1.0F / std::sqrt(sum_of_lanes(d, sum) / static_cast<float>(features) + epsilon));
  each_vector(features, [&](int64_t i, int64_t n) HWY_ATTR {
    store_some(hn::Mul(hn::Mul(load_some(x + i, n), factor), load_some(weight + i, n)), n, out + i);
  });
}

void GatedSilu(const float* gate, const float* up, int64_t features, float* out) {
  const D d;
  each_vector(features, [&](int64_t i, int64_t n) HWY_ATTR {
    const Vec x = load_some(gate + i, n);
    // Beyond 2^126 the quotient is 0 either way; a NaN returns through x.
    const Vec e = exp2(d, hn::Min(hn::Mul(x, hn::Set(d, -kLog2e)), hn::Set(d, 126.0F)));
    store_some(hn::Mul(hn::Div(x, hn::Add(hn::Set(d, 1.0F), e)), load_some(up + i, n)), n, out + i);
  });
}

void RotateHalves(const float* x, const float* cos, const float* sin, int64_t half, float* out) {
  each_vector(half, [&](int64_t i, int64_t n) HWY_ATTR {
    const Vec low = load_some(x + i, n), high = load_some(x + half + i, n);
    const Vec c = load_some(cos + i, n), s = load_some(sin + i, n);
    store_some(hn::Sub(hn::Mul(low, c), hn::Mul(high, s)), n, out + i);
    store_some(hn::Add(hn::Mul(high, c), hn::Mul(low, s)), n, out + half + i);
  });
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>

#include "regard/kernel/dispatch.h"

namespace regard::kernel {
namespace {

// Below, waking other threads costs more than they save.
constexpr int64_t kNumbersAlone = 1 << 15;
constexpr int64_t kNumbersPerTask = 1 << 13;

template <class Row>
void each_row(int64_t rows, int64_t numbers_per_row, Parallel& parallel, Row&& row) {
  if (rows * numbers_per_row <= kNumbersAlone) {
    for (int64_t i = 0; i < rows; ++i) row(i);
    return;
  }
  const int64_t chunk = std::max<int64_t>(1, kNumbersPerTask / std::max<int64_t>(1, numbers_per_row));
  parallel.run((rows + chunk - 1) / chunk, [&](int64_t task, int) {
    for (int64_t i = task * chunk; i < std::min(rows, (task + 1) * chunk); ++i) row(i);
  });
}

}  // namespace

HWY_EXPORT(RmsNorm);
HWY_EXPORT(GatedSilu);
HWY_EXPORT(RotateHalves);

void rms_norm(const float* x, int64_t rows, int64_t features, const float* weight, float epsilon, float* out,
              Parallel& parallel) {
  const auto norm = REGARD_DISPATCH(RmsNorm);
  each_row(rows, features, parallel,
           [&](int64_t i) { norm(x + i * features, features, weight, epsilon, out + i * features); });
}

void gated_silu(const float* gate, const float* up, int64_t stride, int64_t rows, int64_t features,
                float* out, Parallel& parallel) {
  const auto gated = REGARD_DISPATCH(GatedSilu);
  each_row(rows, features, parallel,
           [&](int64_t i) { gated(gate + i * stride, up + i * stride, features, out + i * features); });
}

void rotate_halves(const View<const float>& x, const float* cos, const float* sin, const View<float>& out,
                   Parallel& parallel) {
  const auto rotate = REGARD_DISPATCH(RotateHalves);
  const int64_t heads = x.size[1], half = x.size[3] / 2;
  each_row(x.size[0] * x.size[2], heads * x.size[3], parallel, [&](int64_t i) {
    const int64_t batch = i / x.size[2], position = i % x.size[2];
    for (int64_t head = 0; head < heads; ++head)
      rotate(x.at(batch, head, position), cos + position * half, sin + position * half, half,
             out.at(batch, head, position));
  });
}

}  // namespace regard::kernel

#endif  // HWY_ONCE
