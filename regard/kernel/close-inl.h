// How rows end: close_row() for many rows at once.
#if defined(REGARD_KERNEL_CLOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_CLOSE_INL_H_
#undef REGARD_KERNEL_CLOSE_INL_H_
#else
#define REGARD_KERNEL_CLOSE_INL_H_
#endif

#include <cmath>

#include "regard/kernel/rows.h"
#include "regard/kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// sums[r] = the lanes of row r added up; factors[r] and the LSE as by close_row(). maxima, sums and factors
// are aligned and hold whole vectors.
inline HWY_NOINLINE void close_rows(const Forward& p, const Rows& rows, const float* HWY_RESTRICT maxima,
                                    const float* HWY_RESTRICT lanes, float* HWY_RESTRICT sums,
                                    float* HWY_RESTRICT factors) {
  const D d;
  for (int64_t r = 0; r < rows.count; ++r) sums[r] = sum_of_lanes(d, hn::Load(d, lanes + r * kLanes));
  if (p.sinks) {
    for (int64_t r = 0; r < rows.count; ++r)
      factors[r] = close_row(p, rows.batch, rows.head, rows.begin + r, maxima[r], sums[r]);
    return;
  }
  // The product with ln 2 in two parts: an LSE is rounded once, at its end.
  constexpr float kHigh = static_cast<float>(kLn2);
  const Vec high = hn::Set(d, kHigh), low = hn::Set(d, static_cast<float>(kLn2 - static_cast<double>(kHigh)));
  HWY_ALIGN float lse[kLanes];
  for (int64_t r = 0; r < rows.count; r += kLanes) {
    const Vec sum = hn::Load(d, sums + r), maximum = hn::Load(d, maxima + r);
    const auto empty = hn::Eq(sum, hn::Zero(d));
    hn::Store(hn::IfThenZeroElse(empty, hn::Div(hn::Set(d, 1.0F), sum)), d, factors + r);
    if (!p.lse) continue;
    const Vec top = hn::Mul(maximum, high);
    const Vec rest = hn::MulAdd(maximum, low, hn::MulSub(maximum, high, top));
    const Vec whole = hn::Add(top, hn::Add(rest, log(d, sum)));
    hn::Store(hn::IfThenElse(empty, hn::Set(d, -HUGE_VALF), whole), d, lse);
    for (int64_t i = 0; i < HWY_MIN(kLanes, rows.count - r); ++i)
      p.lse(rows.batch, rows.head, rows.begin + r + i, 0) = lse[i];
  }
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
