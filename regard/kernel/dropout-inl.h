// Which weights dropout keeps, many columns at once.
#if defined(REGARD_KERNEL_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_DROPOUT_INL_H_
#undef REGARD_KERNEL_DROPOUT_INL_H_
#else
#define REGARD_KERNEL_DROPOUT_INL_H_
#endif

#include "regard/kernel/dropout.h"
#include "regard/kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

using UVec = hn::Vec<DU>;

// The halves of the 64-bit products of u32 lanes with one number.
HWY_INLINE void multiply_wide(DU du, UVec x, UVec m, UVec& high, UVec& low) {
  const hn::Repartition<uint64_t, DU> d64;
  const auto even = hn::MulEven(x, m);
  const auto odd = hn::MulEven(hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(d64, x))), m);
  high = hn::OddEven(hn::BitCast(du, odd), hn::BitCast(du, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(du, hn::ShiftLeft<32>(odd)), hn::BitCast(du, even));
}

#endif

// As kept(); key is a multiple of 8.
HWY_INLINE uint64_t kept_bits(const Dropout& dropout, int64_t batch, int64_t head, int64_t row, int64_t key,
                              int64_t columns) {
#if HWY_TARGET == HWY_SCALAR
  return kept(dropout, batch, head, row, key, columns);
#else
  const DU du;
  const UVec m0 = hn::Set(du, 0xD2511F53U);
  const UVec m1 = hn::Set(du, 0xCD9E8D57U);
  const UVec low_half = hn::Set(du, 0xFFFFU);
  const UVec threshold = hn::Set(du, dropout.threshold);
  uint64_t word = 0;
  HWY_ALIGN uint32_t bytes[kLanes];
  // A lane is a counter: the draws of eight columns.
  for (int64_t c = 0; c < columns; c += 8 * kLanes) {
    UVec c0 = hn::Add(hn::Set(du, static_cast<uint32_t>((key + c) / 8)), hn::Iota(du, 0U));
    UVec c1 = hn::Set(du, static_cast<uint32_t>(row));
    UVec c2 = hn::Set(du, static_cast<uint32_t>(head));
    UVec c3 = hn::Set(du, static_cast<uint32_t>(batch));
    auto k0 = static_cast<uint32_t>(dropout.key());
    auto k1 = static_cast<uint32_t>(dropout.key() >> 32);
    for (int round = 0; round < 10; ++round) {
      UVec high0, low0, high1, low1;
      multiply_wide(du, c0, m0, high0, low0);
      multiply_wide(du, c2, m1, high1, low1);
      c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(du, k0));
      c1 = low1;
      c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(du, k1));
      c3 = low0;
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
    UVec byte = hn::Zero(du);
    const auto take = [&](UVec draw, uint32_t bit) HWY_ATTR {
      // draw >= threshold, both below 2^16: the difference has no borrow.
      const UVec below = hn::ShiftRight<31>(hn::Sub(draw, threshold));
      byte = hn::Or(byte, hn::IfThenZeroElse(hn::Eq(below, hn::Set(du, 1U)), hn::Set(du, bit)));
    };
    take(hn::And(c0, low_half), 1);
    take(hn::ShiftRight<16>(c0), 2);
    take(hn::And(c1, low_half), 4);
    take(hn::ShiftRight<16>(c1), 8);
    take(hn::And(c2, low_half), 16);
    take(hn::ShiftRight<16>(c2), 32);
    take(hn::And(c3, low_half), 64);
    take(hn::ShiftRight<16>(c3), 128);
    hn::Store(byte, du, bytes);
    for (int64_t i = 0; i < HWY_MIN(kLanes, int64_t{8}) && c + 8 * i < 64; ++i)
      word |= uint64_t{bytes[i]} << (c + 8 * i);
  }
  return columns >= 64 ? word : word & ((uint64_t{1} << columns) - 1);
#endif
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
