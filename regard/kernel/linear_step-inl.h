// Linear attention step by step: each position is one pass over the state. What decoding needs.
#if defined(REGARD_KERNEL_LINEAR_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_LINEAR_STEP_INL_H_
#undef REGARD_KERNEL_LINEAR_STEP_INL_H_
#else
#define REGARD_KERNEL_LINEAR_STEP_INL_H_
#endif

#include "regard/kernel/linear_chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// to = sum over f of weights[f] * s[f].
HWY_INLINE void weigh_rows(const LinearLayout& l, const float* HWY_RESTRICT s,
                           const float* HWY_RESTRICT weights, float* HWY_RESTRICT to) {
  const D d;
  int64_t n = 0;
  for (; n + 4 * kLanes <= l.dv; n += 4 * kLanes) {
    Vec a = hn::Zero(d), b = a, c = a, e = a;
    for (int64_t f = 0; f < l.dk; ++f) {
      const Vec x = hn::Set(d, weights[f]);
      const float* row = s + f * l.ldv + n;
      a = hn::MulAdd(x, hn::Load(d, row), a);
      b = hn::MulAdd(x, hn::Load(d, row + kLanes), b);
      c = hn::MulAdd(x, hn::Load(d, row + 2 * kLanes), c);
      e = hn::MulAdd(x, hn::Load(d, row + 3 * kLanes), e);
    }
    hn::Store(a, d, to + n);
    hn::Store(b, d, to + n + kLanes);
    hn::Store(c, d, to + n + 2 * kLanes);
    hn::Store(e, d, to + n + 3 * kLanes);
  }
  for (; n < l.dv; n += kLanes) {
    Vec a = hn::Zero(d);
    for (int64_t f = 0; f < l.dk; ++f)
      a = hn::MulAdd(hn::Set(d, weights[f]), hn::Load(d, s + f * l.ldv + n), a);
    hn::Store(a, d, to + n);
  }
}

// The key of one position enters the state. keys holds this position alone.
HWY_INLINE void step_state(const LinearLayout& l, LinearKeys& keys, bool with_norm,
                           const LinearState& state) {
  const D d;
  if (keys.live == 0) return;
  const float* total = keys.gates.total;
  if (l.delta) {
    HWY_ALIGN float pulled[kCols];
    // a_f k_f once, then what the state holds for this key.
    for (int64_t f = 0; f < l.dk; f += kCols) {
      const int64_t n = HWY_MIN(kCols, round_up(l.dk - f, kLanes));
      for (int64_t c = 0; c < n; c += kLanes)
        hn::Store(hn::Mul(hn::Load(d, keys.k + f + c), hn::Load(d, total + f + c)), d, pulled + c);
      for (int64_t c = 0; c < n; c += kLanes) hn::Store(hn::Load(d, pulled + c), d, keys.k_t + f + c);
    }
    weigh_rows(l, state.s, keys.k_t, keys.error);
    const Vec beta = hn::Set(d, keys.beta[0]);
    for (int64_t n = 0; n < l.dv; n += kLanes)
      hn::Store(hn::Mul(beta, hn::Sub(hn::Load(d, keys.v + n), hn::Load(d, keys.error + n))), d, keys.v + n);
  }
  for (int64_t f = 0; f < l.dk; ++f) {
    const Vec x = hn::Set(d, keys.k[f]);
    const Vec kept = hn::Set(d, total[f]);
    float* row = state.s + f * l.ldv;
    for (int64_t n = 0; n < l.dv; n += kLanes)
      hn::Store(hn::MulAdd(kept, hn::Load(d, row + n), hn::Mul(x, hn::Load(d, keys.v + n))), d, row + n);
    if (with_norm) state.z[f] = std::fma(total[f], state.z[f], keys.k[f]);
  }
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
