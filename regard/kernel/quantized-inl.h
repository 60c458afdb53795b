// Integer products of a panel of weights with rows of inputs, and the rounding of inputs: once per target.
#if defined(REGARD_KERNEL_QUANTIZED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_QUANTIZED_INL_H_
#undef REGARD_KERNEL_QUANTIZED_INL_H_
#else
#define REGARD_KERNEL_QUANTIZED_INL_H_
#endif

#include <cstring>

#include "regard/kernel/quantized.h"
#include "regard/kernel/quantized_rows.h"
#include "regard/kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

constexpr int64_t kPanelRows = QuantizedLayout::kPanelRows;
constexpr int64_t kBlock = QuantizedLayout::kBlock;
constexpr int64_t kQuads = kBlock / 4;
constexpr int64_t kQuadBytes = kPanelRows * 4;  // four columns of a panel

template <int kBits_, int64_t kGroup_, bool kMinimum_>
struct FormatOf {
  static constexpr int kBits = kBits_;
  static constexpr bool kMinimum = kMinimum_;
  static constexpr int64_t kGroups = kBlock / kGroup_;
  static constexpr int64_t kGroupQuads = kGroup_ / 4;
  static constexpr int64_t kValueBytes = kPanelRows * kBlock / (kBits == 4 ? 2 : 1);
  static constexpr int64_t kGroupNumbers = kPanelRows * (kMinimum ? 2 : 1);  // scales, minima
  static constexpr int64_t kBlockBytes = kValueBytes + kGroups * kGroupNumbers * 2;
  static constexpr int64_t kBlockNumbers = kGroups * kGroupNumbers;
};

template <class Run>
void with_format(const QuantizedFormat& format, Run&& run) {
  if (format.bits == 4)
    return format.has_minimum ? run(FormatOf<4, 32, true>()) : run(FormatOf<4, 32, false>());
  if (format.bits == 5)
    return format.has_minimum ? run(FormatOf<5, 32, true>()) : run(FormatOf<5, 32, false>());
  if (format.bits == 6) return run(FormatOf<6, 16, false>());
  if (format.bits == 7) return run(FormatOf<7, 32, false>());
  return run(FormatOf<8, 32, false>());
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr bool kVectorsOfBytes = true;
using Bytes = hn::Vec<hn::Repartition<uint8_t, D>>;  // kLanes rows x 4 columns
using Words = hn::Vec<hn::Repartition<int16_t, D>>;
using Ints = hn::Vec<DI>;
constexpr int64_t kRowVecs = kPanelRows / kLanes;

HWY_INLINE Bytes load_bytes(const uint8_t* from) {
  return hn::LoadU(hn::Repartition<uint8_t, D>(), from);
}

// Four inputs, the same for all rows.
HWY_INLINE Ints spread(const int8_t* from) {
  int32_t four;
  std::memcpy(&four, from, sizeof four);
  return hn::Set(DI(), four);
}

// Has the sum in a register now: GCC would otherwise first make all products and store most of them.
template <class V>
HWY_INLINE void keep(V& sum) {
#if HWY_TARGET == HWY_AVX2
  asm("" : "+x"(sum.raw));
#elif HWY_TARGET == HWY_AVX3
  asm("" : "+v"(sum.raw));
#else
  asm("" : "+w"(sum.raw));
#endif
}

#if HWY_TARGET == HWY_NEON
constexpr bool kSignedBytes = true;  // 8-bit weights are shifted to signed ones: offset() is in the product
HWY_INLINE Bytes to_signed(Bytes w) {
  return hn::Xor(w, hn::Set(hn::Repartition<uint8_t, D>(), 0x80));
}
// Sums of products of neighbours, 16 bits: for weights up to 7 bits, or signed ones of 8.
HWY_INLINE Words pairs(Bytes w, Ints x) {
  const int8x16_t a = vreinterpretq_s8_u8(w.raw);
  const int8x16_t b = vreinterpretq_s8_s32(x.raw);
  return Words(vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b)));
}
HWY_INLINE Ints sum_pairs(Words words) {
  return Ints(vpaddlq_s16(words.raw));
}
HWY_INLINE Ints add_pairs(Ints sum, Words words) {
  return Ints(vpadalq_s16(sum.raw, words.raw));
}
HWY_INLINE Ints add_fours(Ints sum, Bytes w, Ints x) {
  asm(".arch armv8.2-a+crypto+dotprod\n\tsdot %0.4s, %1.16b, %2.16b"
      : "+w"(sum.raw)
      : "w"(w.raw), "w"(x.raw));
  return sum;
}
#else
constexpr bool kSignedBytes = false;
HWY_INLINE Bytes to_signed(Bytes w) {
  return w;
}
HWY_INLINE Words pairs(Bytes w, Ints x) {
#if HWY_TARGET == HWY_AVX2
  return Words{_mm256_maddubs_epi16(w.raw, x.raw)};
#else
  return Words{_mm512_maddubs_epi16(w.raw, x.raw)};
#endif
}
HWY_INLINE Ints times(Words a, Words b) {
#if HWY_TARGET == HWY_AVX2
  return Ints{_mm256_madd_epi16(a.raw, b.raw)};
#else
  return Ints{_mm512_madd_epi16(a.raw, b.raw)};
#endif
}
HWY_INLINE Ints sum_pairs(Words words) {
  return times(words, hn::Set(hn::Repartition<int16_t, D>(), 1));
}
HWY_INLINE Ints add_pairs(Ints sum, Words words) {
  return hn::Add(sum, sum_pairs(words));
}
// Written out: the instruction sets of these targets do not hold it.
HWY_INLINE Ints add_fours(Ints sum, Bytes w, Ints x) {
#if HWY_TARGET == HWY_AVX2
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(w.raw), "x"(x.raw));
#else
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(x.raw));
#endif
  return sum;
}
#endif

// Products of 16 bits that a 16-bit sum holds: pairs of 2 * (2^bits - 1) * 127.
template <int kBits>
constexpr int64_t kDepth = kBits == 4   ? 8
                           : kBits == 5 ? 4
                           : kBits == 6 ? 2
                                        : 1;

// Rows of inputs that share each load of weights: as many as leave their sums in registers.
template <class F>
constexpr int64_t kTileRows = HWY_TARGET == HWY_AVX2 && (F::kBits == 5 || F::kBits == 6) ? 2 : 4;

// Where the tile finds a panel: as it is stored...
template <class F>
struct StoredPanel {
  const uint8_t* at;

  HWY_INLINE Bytes weights(int64_t block, int64_t quad, int64_t v) const {
    const uint8_t* from = at + block * F::kBlockBytes + v * kLanes * 4;
    if constexpr (F::kBits != 4) return load_bytes(from + quad * kQuadBytes);
    const hn::Repartition<uint8_t, D> d8;
    const hn::Repartition<uint16_t, D> d16;
    const Bytes both = load_bytes(from + quad % (kQuads / 2) * kQuadBytes);
    const Bytes low = hn::Set(d8, 15);
    if (quad < kQuads / 2) return hn::And(both, low);
    return hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, both))), low);
  }
  // index: 0 scales, 1 minima.
  HWY_INLINE Vec numbers(int64_t block, int64_t group, int64_t index, int64_t v) const {
    const uint8_t* from = at + block * F::kBlockBytes + F::kValueBytes +
                          (group * F::kGroupNumbers + index * kPanelRows + v * kLanes) * 2;
    return load(D(), reinterpret_cast<const f16*>(from));
  }
};

// ... or as bytes and floats.
template <class F>
struct ExpandedPanel {
  const uint8_t* bytes;
  int64_t block_bytes;
  const float* floats;

  HWY_INLINE Bytes weights(int64_t block, int64_t quad, int64_t v) const {
    return load_bytes(bytes + block * block_bytes + quad * kQuadBytes + v * kLanes * 4);
  }
  HWY_INLINE Vec numbers(int64_t block, int64_t group, int64_t index, int64_t v) const {
    return hn::Load(
        D(), floats + block * F::kBlockNumbers + group * F::kGroupNumbers + index * kPanelRows + v * kLanes);
  }
};

// dot[r][v] = the integer sums of one group for rows of inputs r and kLanes rows of weights v.
template <class F, bool kDot, int64_t kR, class Panel>
HWY_INLINE void multiply_group(const Panel& panel, const RoundedRows& x, int64_t row, int64_t block,
                               int64_t first_quad, Ints (&dot)[kR][kRowVecs]) {
  constexpr bool kSigned = F::kBits == 8 && kSignedBytes;
  const int8_t* from = x.values + row * x.value_stride + block * x.block_bytes();
// N names the loop's variable. NOLINTNEXTLINE(bugprone-macro-parentheses)
#define REGARD_EACH(N, COUNT) _Pragma("GCC unroll 16") for (int64_t N = 0; N < (COUNT); ++N)
  if constexpr (!kDot && F::kBits == 8 && !kSignedBytes) {
#if HWY_TARGET != HWY_NEON
    // Even and odd columns apart, widened: 8 by 8 bits exactly.
    const hn::Repartition<int16_t, D> d16;
    const hn::Repartition<uint16_t, D> du16;
    REGARD_EACH(q, F::kGroupQuads) {
      Words even[kRowVecs], odd[kRowVecs];
      REGARD_EACH(v, kRowVecs) {
        const auto both = hn::BitCast(du16, panel.weights(block, first_quad + q, v));
        even[v] = hn::BitCast(d16, hn::And(both, hn::Set(du16, 255)));
        odd[v] = hn::BitCast(d16, hn::ShiftRight<8>(both));
      }
      REGARD_EACH(r, kR) {
        const int8_t* at = from + r * x.value_stride + (first_quad + q) * 8;
        const Words x_even = hn::BitCast(d16, spread(at));
        const Words x_odd = hn::BitCast(d16, spread(at + 4));
        REGARD_EACH(v, kRowVecs) {
          const Ints first = times(even[v], x_even);
          dot[r][v] = q == 0 ? first : hn::Add(dot[r][v], first);
          dot[r][v] = hn::Add(dot[r][v], times(odd[v], x_odd));
          keep(dot[r][v]);
        }
      }
    }
#endif
  } else if constexpr (kDot) {
    REGARD_EACH(r, kR) REGARD_EACH(v, kRowVecs) dot[r][v] = hn::Zero(DI());
    REGARD_EACH(q, F::kGroupQuads) {
      Bytes w[kRowVecs];
      REGARD_EACH(v, kRowVecs) {
        w[v] = panel.weights(block, first_quad + q, v);
        if constexpr (kSigned) w[v] = to_signed(w[v]);
      }
      REGARD_EACH(r, kR) {
        const Ints four = spread(from + r * x.value_stride + (first_quad + q) * 4);
        REGARD_EACH(v, kRowVecs) dot[r][v] = add_fours(dot[r][v], w[v], four);
      }
    }
  } else {
    constexpr int64_t kSteps = F::kGroupQuads / kDepth<F::kBits>;
    REGARD_EACH(step, kSteps) {
      Words sum[kR][kRowVecs];
      REGARD_EACH(i, kDepth<F::kBits>) {
        // Both halves of a byte one after the other.
        const int64_t quad =
            F::kBits == 4 ? i / 2 + i % 2 * (kQuads / 2) : first_quad + step * kDepth<F::kBits> + i;
        Bytes w[kRowVecs];
        REGARD_EACH(v, kRowVecs) {
          w[v] = panel.weights(block, quad, v);
          if constexpr (kSigned) w[v] = to_signed(w[v]);
        }
        REGARD_EACH(r, kR) {
          const Ints four = spread(from + r * x.value_stride + quad * 4);
          REGARD_EACH(v, kRowVecs) {
            const Words products = pairs(w[v], four);
            sum[r][v] = i == 0 ? products : hn::Add(sum[r][v], products);
            keep(sum[r][v]);
            if (i + 1 < kDepth<F::kBits>) continue;
            dot[r][v] = step == 0 ? sum_pairs(sum[r][v]) : add_pairs(dot[r][v], sum[r][v]);
            keep(dot[r][v]);
          }
        }
      }
    }
  }
}

// sums[r][kPanelRows] += the products of blocks [begin, end).
template <class F, bool kDot, int64_t kR, class Panel>
HWY_INLINE void multiply_rows(const Panel& panel, const RoundedRows& x, int64_t row, int64_t begin,
                              int64_t end, float* sums) {
  const D d;
  constexpr bool kCorrected = F::kMinimum || !(F::kBits == 8 && kSignedBytes);
  Vec sum[kR][kRowVecs];
  REGARD_EACH(r, kR) REGARD_EACH(v, kRowVecs) sum[r][v] = hn::Load(d, sums + r * kPanelRows + v * kLanes);
  for (int64_t block = begin; block < end; ++block) {
    REGARD_EACH(g, F::kGroups) {
      Ints dot[kR][kRowVecs];
      multiply_group<F, kDot, kR>(panel, x, row, block, g * F::kGroupQuads, dot);
      REGARD_EACH(v, kRowVecs) {
        const Vec scale = panel.numbers(block, g, 0, v);
        const Vec minimum = F::kMinimum ? panel.numbers(block, g, 1, v) : scale;
        REGARD_EACH(r, kR) {
          const float* numbers = x.numbers_of(row + r, block);
          sum[r][v] =
              hn::MulAdd(hn::Mul(scale, hn::Set(d, numbers[0])), hn::ConvertTo(d, dot[r][v]), sum[r][v]);
          if constexpr (kCorrected) sum[r][v] = hn::MulAdd(minimum, hn::Set(d, numbers[1 + g]), sum[r][v]);
        }
      }
    }
  }
  REGARD_EACH(r, kR) REGARD_EACH(v, kRowVecs) hn::Store(sum[r][v], d, sums + r * kPanelRows + v * kLanes);
#undef REGARD_EACH
}

// A panel's blocks [begin, end) for reuse by many rows; 4-bit ones become bytes, the others stay in place.
template <class F>
HWY_INLINE ExpandedPanel<F> expand(const uint8_t* panel, int64_t begin, int64_t end, uint8_t* bytes,
                                   float* floats) {
  const hn::Repartition<uint8_t, D> d8;
  const StoredPanel<F> stored{panel};
  for (int64_t block = begin; block < end; ++block) {
    if constexpr (F::kBits == 4) {
      for (int64_t quad = 0; quad < kQuads; ++quad)
        for (int64_t v = 0; v < kRowVecs; ++v)
          hn::Store(stored.weights(block, quad, v), d8,
                    bytes + (block * kQuads + quad) * kQuadBytes + v * kLanes * 4);
    }
    for (int64_t g = 0; g < F::kGroups; ++g)
      for (int64_t index = 0; index < (F::kMinimum ? 2 : 1); ++index)
        for (int64_t v = 0; v < kRowVecs; ++v)
          hn::Store(
              stored.numbers(block, g, index, v), D(),
              floats + block * F::kBlockNumbers + g * F::kGroupNumbers + index * kPanelRows + v * kLanes);
  }
  if constexpr (F::kBits == 4) return {bytes, kQuads * kQuadBytes, floats};
  return {panel, F::kBlockBytes, floats};
}

#else

// The portable baseline: the same sums with the compiler's own vectors.
constexpr bool kVectorsOfBytes = false;
template <class F>
constexpr int64_t kTileRows = 1;

template <class F>
struct StoredPanel {
  const uint8_t* at;
};
template <class F>
using ExpandedPanel = StoredPanel<F>;

template <class F>
HWY_INLINE ExpandedPanel<F> expand(const uint8_t* panel, int64_t, int64_t, uint8_t*, float*) {
  return {panel};
}

template <class F, bool kDot, int64_t kR, class Panel>
HWY_INLINE void multiply_rows(const Panel& panel, const RoundedRows& x, int64_t row, int64_t begin,
                              int64_t end, float* sums) {
  static_assert(kR == 1);
  for (int64_t block = begin; block < end; ++block) {
    const uint8_t* at = panel.at + block * F::kBlockBytes;
    const int8_t* values = x.values + row * x.value_stride + block * kBlock;
    const float* numbers = x.numbers_of(row, block);
    for (int64_t g = 0; g < F::kGroups; ++g) {
      int32_t dot[kPanelRows] = {};
      for (int64_t q = 0; q < F::kGroupQuads; ++q) {
        const int64_t quad = g * F::kGroupQuads + q;
        const uint8_t* w = at + (F::kBits == 4 ? quad % (kQuads / 2) : quad) * kQuadBytes;
        const int shift = F::kBits == 4 && quad >= kQuads / 2 ? 4 : 0;
        for (int64_t i = 0; i < kPanelRows; ++i)
          for (int64_t c = 0; c < 4; ++c)
            dot[i] += ((w[i * 4 + c] >> shift) & (F::kBits == 4 ? 15 : 255)) * values[quad * 4 + c];
      }
      const uint8_t* halfs = at + F::kValueBytes + g * F::kGroupNumbers * 2;
      for (int64_t i = 0; i < kPanelRows; ++i) {
        f16 scale, minimum;
        std::memcpy(&scale, halfs + i * 2, 2);
        std::memcpy(&minimum, halfs + (i + (F::kMinimum ? kPanelRows : 0)) * 2, 2);
        sums[i] +=
            to_float(scale) * numbers[0] * static_cast<float>(dot[i]) + to_float(minimum) * numbers[1 + g];
      }
    }
  }
}

#endif

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
