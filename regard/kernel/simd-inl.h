// Loads that widen to float32, exp2, log and tanh: shared by the kernels, once per target (Highway's toggle
// guard).
#if defined(REGARD_KERNEL_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_SIMD_INL_H_
#undef REGARD_KERNEL_SIMD_INL_H_
#else
#define REGARD_KERNEL_SIMD_INL_H_
#endif

#include "regard/kernel/hwy_config.h"

#include <cmath>
#include <numbers>

#include <hwy/highway.h>

#include "regard/kernel/types.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using DU = hn::RebindToUnsigned<D>;
using Vec = hn::Vec<D>;
constexpr int64_t kLanes = hn::MaxLanes(D());

// The register tile: kRows query rows by kCols columns (keys, or features of v), one accumulator vector per
// row and kLanes columns. Accumulators + one row of B + a broadcast fill the register file: 12 + 2 + 1 of 16
// (AVX2), 24 + 2 + 1 of 32 (AVX-512), 24 + 4 + 1 of 32 (NEON).
#if HWY_TARGET == HWY_AVX3
constexpr int64_t kRows = 12;
constexpr int64_t kCols = 32;
#else
constexpr int64_t kRows = 6;
constexpr int64_t kCols = 16;
#endif
constexpr int64_t kVecs = kCols / kLanes;
constexpr int64_t kTile = kRows * kCols;  // floats of a stored tile, row-major

constexpr float kLog2e = std::numbers::log2e_v<float>;
constexpr double kLn2 = std::numbers::ln2;

HWY_INLINE Vec load(D d, const float* p) {
  return hn::LoadU(d, p);
}

HWY_INLINE Vec load(D d, const bf16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const auto wide = hn::PromoteTo(DU(), hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(wide));
}

HWY_INLINE Vec load(D d, const f16* p) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#else
  // As to_float(f16): Highway's emulation does not know infinity and NaN.
  const hn::Rebind<uint16_t, D> d16;
  const DU du;
  const auto wide = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000U)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7FFFU)));
  const auto finite =
      hn::BitCast(du, hn::Mul(hn::BitCast(d, magnitude), hn::BitCast(d, hn::Set(du, 0x77800000U))));
  const auto special = hn::Or(magnitude, hn::Set(du, 0x70000000U));
  const DI di;
  const auto is_special = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x0F7FFFFF));
  const auto value = hn::IfThenElse(is_special, hn::BitCast(di, special), hn::BitCast(di, finite));
  return hn::BitCast(d, hn::Or(hn::BitCast(du, value), sign));
#endif
}

// Without its scale.
HWY_INLINE Vec load(D d, const int8_t* p) {
  const hn::Rebind<int8_t, D> d8;
  return hn::ConvertTo(d, hn::PromoteTo(DI(), hn::LoadU(d8, p)));
}

// x[i] = 2^x[i] for x <= 126, relative error below 8e-8; 0 below -126 and for -infinity, NaN for NaN, exactly
// 1 at 0. Polynomial: minimax on [-0.5, 0.5] with constant term 1, truncation 1.6e-8. Step by step for all of
// them: one alone is a chain of some 40 cycles, and a scheduler holds too few of them to fill the units.
template <int64_t kCount>
HWY_INLINE void exp2(D d, Vec (&x)[kCount]) {
  const DU du;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low mantissa bits.
  const Vec magic = hn::Set(d, 12582912.0F);
  Vec shifted[kCount], f[kCount], p[kCount];
#define REGARD_EACH _Pragma("GCC unroll 16") for (int64_t i = 0; i < kCount; ++i)
  REGARD_EACH shifted[i] = hn::Add(x[i], magic);
  REGARD_EACH f[i] = hn::Sub(x[i], hn::Sub(shifted[i], magic));
  REGARD_EACH p[i] = hn::MulAdd(hn::Set(d, 0.0001535344636067748F), f[i], hn::Set(d, 0.0013398878509178758F));
  REGARD_EACH p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, 0.00961843691766262F));
  REGARD_EACH p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, 0.055503323674201965F));
  REGARD_EACH p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, 0.24022647738456726F));
  REGARD_EACH p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, 0.6931471824645996F));
  REGARD_EACH p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, 1.0F));
  // A product, not an addition to the exponent field: a NaN must stay one.
  REGARD_EACH p[i] = hn::Mul(p[i], hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(du, shifted[i])),
                                                          hn::Set(du, 0x3F800000U))));
  REGARD_EACH x[i] = hn::IfThenZeroElse(hn::Lt(x[i], hn::Set(d, -126.0F)), p[i]);
#undef REGARD_EACH
}

HWY_INLINE Vec exp2(D d, Vec x) {
  Vec one[1] = {x};
  exp2(d, one);
  return one[0];
}

// tanh, relative error below 2e-7: a softcap must not lose the digits of small scores.
HWY_INLINE Vec tanh(D d, Vec x) {
  const Vec magnitude = hn::Abs(x);
  const Vec one = hn::Set(d, 1.0F);
  // Small: x + x^3 P(x^2). Large: 1 - 2 / (e^2x + 1), with the argument held where the result is 1 anyway.
  const Vec x2 = hn::Mul(x, x);
  Vec p = hn::Set(d, -0.00570493470877409F);
  p = hn::MulAdd(p, x2, hn::Set(d, 0.02063904143869877F));
  p = hn::MulAdd(p, x2, hn::Set(d, -0.053739700466394424F));
  p = hn::MulAdd(p, x2, hn::Set(d, 0.13331441581249237F));
  p = hn::MulAdd(p, x2, hn::Set(d, -0.3333328068256378F));
  const Vec small = hn::MulAdd(hn::Mul(x2, x), p, x);
  const auto is_large = hn::Gt(magnitude, hn::Set(d, 0.625F));
  const auto is_huge = hn::Gt(magnitude, hn::Set(d, 12.0F));
  const Vec held = hn::IfThenElse(is_huge, hn::Set(d, 12.0F), magnitude);
  const Vec e = exp2(d, hn::Mul(held, hn::Set(d, 2.0F * kLog2e)));
  const Vec large = hn::Sub(one, hn::Div(hn::Set(d, 2.0F), hn::Add(e, one)));
  return hn::IfThenElse(is_large, hn::CopySign(large, x), small);
}

// Natural logarithm of a normal number above 0, error below 1.2e-7 of it or of ln 2; infinity and NaN stay.
// x = 2^e m, m in [sqrt(1/2), sqrt(2)); ln(1 + f) = f - f^2 / 2 + f^3 P(f), P minimax, truncation 7e-9.
HWY_INLINE Vec log(D d, Vec x) {
  const DI di;
  const auto bits = hn::BitCast(di, x);
  const auto e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3F3504F3)));
  const Vec f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e))), hn::Set(d, 1.0F));
  Vec p = hn::Set(d, -0.07872329652309418F);
  p = hn::MulAdd(p, f, hn::Set(d, 0.12878549098968506F));
  p = hn::MulAdd(p, f, hn::Set(d, -0.1312228888273239F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.14181433618068695F));
  p = hn::MulAdd(p, f, hn::Set(d, -0.1662531942129135F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.2000228613615036F));
  p = hn::MulAdd(p, f, hn::Set(d, -0.25000783801078796F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.33333316445350647F));
  const Vec f2 = hn::Mul(f, f);
  const Vec tail = hn::MulAdd(hn::Mul(f2, f), p, hn::Mul(f2, hn::Set(d, -0.5F)));
  const Vec whole = hn::MulAdd(hn::ConvertTo(d, e), hn::Set(d, static_cast<float>(kLn2)), hn::Add(f, tail));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, HUGE_VALF)), whole, x);
}

// The lanes whose bit is set.
HWY_INLINE hn::Mask<D> visible(D d, uint64_t bits) {
  return hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&bits));
}

HWY_INLINE float sum_of_lanes(D d, Vec v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

HWY_INLINE float max_of_lanes(D d, Vec v) {
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
