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

// words[n] = kept() of 64 columns from key + 64 n on; key is a multiple of 8. Several at once: one counter's
// rounds are a chain that leaves the units idle.
template <int64_t kWords>
HWY_INLINE void kept_words(const Dropout& dropout, int64_t batch, int64_t head, int64_t row, int64_t key,
                           uint64_t (&words)[kWords]) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t n = 0; n < kWords; ++n) words[n] = kept(dropout, batch, head, row, key + n * 64, 64);
#else
  // A lane is a counter: the draws of eight columns.
  constexpr int64_t kVectors = (kWords * 8 + kLanes - 1) / kLanes;
  const DU du;
  const UVec m0 = hn::Set(du, 0xD2511F53U);
  const UVec m1 = hn::Set(du, 0xCD9E8D57U);
  UVec c[kVectors][4];
#define REGARD_EACH _Pragma("GCC unroll 8") for (int64_t i = 0; i < kVectors; ++i)
  REGARD_EACH {
    c[i][0] = hn::Add(hn::Set(du, static_cast<uint32_t>(key / 8 + i * kLanes)), hn::Iota(du, 0U));
    c[i][1] = hn::Set(du, static_cast<uint32_t>(row));
    c[i][2] = hn::Set(du, static_cast<uint32_t>(head));
    c[i][3] = hn::Set(du, static_cast<uint32_t>(batch + dropout.first_batch));
  }
  auto k0 = static_cast<uint32_t>(dropout.key());
  auto k1 = static_cast<uint32_t>(dropout.key() >> 32);
  for (int round = 0; round < 10; ++round) {
    REGARD_EACH {
      UVec high0, low0, high1, low1;
      multiply_wide(du, c[i][0], m0, high0, low0);
      multiply_wide(du, c[i][2], m1, high1, low1);
      c[i][0] = hn::Xor(hn::Xor(high1, c[i][1]), hn::Set(du, k0));
      c[i][1] = low1;
      c[i][2] = hn::Xor(hn::Xor(high0, c[i][3]), hn::Set(du, k1));
      c[i][3] = low0;
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  // draw - threshold borrows below the threshold: the sign says "dropped". Draws of a word's low half are the
  // even columns.
  const UVec low_half = hn::Set(du, 0xFFFFU);
  const UVec threshold = hn::Set(du, dropout.threshold);
  HWY_ALIGN uint32_t bytes[kVectors * kLanes];
  REGARD_EACH {
    UVec dropped = hn::Zero(du);
#pragma GCC unroll 4
    for (int w = 3; w >= 0; --w) {
      const UVec odd = hn::Sub(hn::ShiftRight<16>(c[i][w]), threshold);
      const UVec even = hn::Sub(hn::And(c[i][w], low_half), threshold);
      dropped = hn::Or(hn::ShiftLeft<1>(dropped), hn::ShiftRight<31>(odd));
      dropped = hn::Or(hn::ShiftLeft<1>(dropped), hn::ShiftRight<31>(even));
    }
    hn::Store(dropped, du, bytes + i * kLanes);
  }
#undef REGARD_EACH
  for (int64_t n = 0; n < kWords; ++n) {
    uint64_t word = 0;
    for (int64_t i = 0; i < 8; ++i) word |= uint64_t{bytes[n * 8 + i]} << (8 * i);
    words[n] = ~word;
  }
#endif
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
