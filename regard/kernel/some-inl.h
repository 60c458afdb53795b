// Rows of any length in vectors: shared by pointwise kernels, once per target (Highway's toggle guard).
#if defined(REGARD_KERNEL_SOME_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_SOME_INL_H_
#undef REGARD_KERNEL_SOME_INL_H_
#else
#define REGARD_KERNEL_SOME_INL_H_
#endif

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

// The first `count` lanes, then zeros.
HWY_INLINE Vec keep_some(Vec v, int64_t count) {
  const D d;
  return count == kLanes ? v : hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count)), v);
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
