#include "regard/kernel/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/pointwise.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/some-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

void GatedSilu(const float* gate, const float* up, int64_t features, float* out) {
  const D d;
  each_vector(features, [&](int64_t i, int64_t n) HWY_ATTR {
    const Vec x = load_some(gate + i, n);
    // Beyond 2^126 the quotient is 0 either way; a NaN returns through x.
    const Vec e = exp2(d, hn::Min(hn::Mul(x, hn::Set(d, -kLog2e)), hn::Set(d, 126.0F)));
    store_some(hn::Mul(hn::Div(x, hn::Add(hn::Set(d, 1.0F), e)), load_some(up + i, n)), n, out + i);
  });
}

// With s = sigmoid(gate): d_up = grad gate s; d_gate = grad up s (1 + gate (1 - s)).
void GatedSiluBackward(const float* gate, const float* up, const float* grad, int64_t features, float* d_gate,
                       float* d_up) {
  const D d;
  const Vec one = hn::Set(d, 1.0F);
  each_vector(features, [&](int64_t i, int64_t n) HWY_ATTR {
    const Vec x = load_some(gate + i, n), g = load_some(grad + i, n);
    const Vec e = exp2(d, hn::Min(hn::Mul(x, hn::Set(d, -kLog2e)), hn::Set(d, 126.0F)));
    const Vec sigmoid = hn::Div(one, hn::Add(one, e));
    const Vec gated = hn::Mul(g, sigmoid);
    const Vec slope = hn::MulAdd(x, hn::Sub(one, sigmoid), one);
    store_some(hn::Mul(hn::Mul(gated, load_some(up + i, n)), slope), n, d_gate + i);
    store_some(hn::Mul(gated, x), n, d_up + i);
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

HWY_EXPORT(GatedSilu);
HWY_EXPORT(GatedSiluBackward);
HWY_EXPORT(RotateHalves);

void gated_silu(const float* gate, const float* up, int64_t stride, int64_t rows, int64_t features,
                float* out, Parallel& parallel) {
  const auto gated = REGARD_DISPATCH(GatedSilu);
  each_row(rows, features, parallel,
           [&](int64_t i) { gated(gate + i * stride, up + i * stride, features, out + i * features); });
}

void gated_silu_backward(const float* gate, const float* up, int64_t stride, const float* grad, int64_t rows,
                         int64_t features, float* d_gate, float* d_up, Parallel& parallel) {
  const auto backward = REGARD_DISPATCH(GatedSiluBackward);
  each_row(rows, features, parallel, [&](int64_t i) {
    backward(gate + i * stride, up + i * stride, grad + i * features, features, d_gate + i * stride,
             d_up + i * stride);
  });
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
