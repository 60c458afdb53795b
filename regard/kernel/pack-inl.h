// Packing: strided inputs of any type become float32 panels that the register tile reads in order.
#if defined(REGARD_KERNEL_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_PACK_INL_H_
#undef REGARD_KERNEL_PACK_INL_H_
#else
#define REGARD_KERNEL_PACK_INL_H_
#endif

#include "regard/kernel/simd-inl.h"
#include "regard/kernel/view.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// to[0 .. n) = factor * from[i * stride], converted; reads nothing else.
template <class T>
HWY_INLINE void load_row(const T* from, int64_t stride, int64_t n, float factor, float* HWY_RESTRICT to) {
  const D d;
  int64_t i = 0;
  if (stride == 1) {
    const Vec scale = hn::Set(d, factor);
    for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(load(d, from + i), scale), d, to + i);
  }
  for (; i < n; ++i) to[i] = to_float(from[i * stride]) * factor;
}

#if HWY_TARGET != HWY_SCALAR
// Four features of kLanes rows: block j (128 bits) holds row 4 j.
HWY_INLINE Vec gather_blocks(D d, const float* from, int64_t ld) {
#if HWY_TARGET == HWY_AVX3
  const hn::Half<D> half;
  const hn::Half<decltype(half)> quarter;
  const auto low = hn::Combine(half, hn::LoadU(quarter, from + 4 * ld), hn::LoadU(quarter, from));
  const auto high = hn::Combine(half, hn::LoadU(quarter, from + 12 * ld), hn::LoadU(quarter, from + 8 * ld));
  return hn::Combine(d, high, low);
#elif HWY_TARGET == HWY_AVX2
  const hn::Half<D> half;
  return hn::Combine(d, hn::LoadU(half, from + 4 * ld), hn::LoadU(half, from));
#else
  (void)ld;
  return hn::LoadU(d, from);
#endif
}
#endif

// to[column][row] = from[row][column]; reads and writes whole vectors, within padded rows.
HWY_INLINE void transpose(const float* HWY_RESTRICT from, int64_t ld, int64_t rows, int64_t columns,
                          float* HWY_RESTRICT to, int64_t to_ld) {
  int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  const D d;
  const hn::Repartition<uint64_t, D> d64;
  for (; c + 4 <= columns; c += 4) {
    for (int64_t row = 0; row < rows; row += kLanes) {
      const float* p = from + row * ld + c;
      const Vec a = gather_blocks(d, p, ld);
      const Vec b = gather_blocks(d, p + ld, ld);
      const Vec e = gather_blocks(d, p + 2 * ld, ld);
      const Vec f = gather_blocks(d, p + 3 * ld, ld);
      const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, a, b));
      const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
      const auto ef_low = hn::BitCast(d64, hn::InterleaveLower(d, e, f));
      const auto ef_high = hn::BitCast(d64, hn::InterleaveUpper(d, e, f));
      float* q = to + c * to_ld + row;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, ab_low, ef_low)), d, q);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, ef_low)), d, q + to_ld);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, ab_high, ef_high)), d, q + 2 * to_ld);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, ef_high)), d, q + 3 * to_ld);
    }
  }
#endif
  for (; c < columns; ++c)
    for (int64_t row = 0; row < rows; ++row) to[c * to_ld + row] = from[row * ld + c];
}

// Keys [begin, end) of one head into panels to[panel][Dk][kCols]; begin is a multiple of kCols, `to` is the
// panel of key 0. Columns past the last key become 0 (they are masked later). staging: kCols * Dk floats.
template <class T>
HWY_INLINE void pack_keys(const View<const T>& k, int64_t batch, int64_t head, int64_t begin, int64_t end,
                          float* HWY_RESTRICT staging, float* HWY_RESTRICT to) {
  const int64_t features = k.size[3];
  for (int64_t key = begin; key < end; key += kCols) {
    const int64_t rows = HWY_MIN(kCols, end - key);
    float* panel = to + key * features;
    if constexpr (sizeof(T) == 4) {
      if (rows == kCols && k.stride[3] == 1) {
        transpose(k.at(batch, head, key), k.stride[2], kCols, features, panel, kCols);
        continue;
      }
    }
    for (int64_t r = 0; r < rows; ++r)
      load_row(k.at(batch, head, key + r), k.stride[3], features, 1.0F, staging + r * features);
    for (int64_t i = rows * features; i < kCols * features; ++i) staging[i] = 0.0F;
    transpose(staging, features, kCols, features, panel, kCols);
  }
}

// One row, times factor, as row `at` of panels to[D / kCols][panel_rows][kCols]; features past D become 0.
// Returns whether all of it is finite.
template <class T>
HWY_INLINE bool pack_row(const T* from, int64_t stride, int64_t features, float factor, int64_t panel_rows,
                         int64_t at, float* HWY_RESTRICT to) {
  const D d;
  const DI di;
  const Vec scale = hn::Set(d, factor);
  auto largest = hn::Zero(di);
  for (int64_t f = 0; f < features; f += kCols) {
    float* row = to + f * panel_rows + at * kCols;
    const int64_t n = HWY_MIN(kCols, features - f);
    if (n < kCols || stride != 1) {
      for (int64_t i = n; i < kCols; ++i) row[i] = 0.0F;
      load_row(from + f * stride, stride, n, factor, row);
#pragma GCC unroll 4
      for (int64_t i = 0; i < kCols; i += kLanes)
        largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::Load(d, row + i))));
      continue;
    }
#pragma GCC unroll 4
    for (int64_t i = 0; i < kCols; i += kLanes) {
      const Vec x = hn::Mul(load(d, from + f + i), scale);
      hn::Store(x, d, row + i);
      largest = hn::Max(largest, hn::BitCast(di, hn::Abs(x)));
    }
  }
  return hn::AllTrue(di, hn::Lt(largest, hn::Set(di, 0x7F800000)));
}

// Rows [begin, end) of one head by pack_row(). nonfinite: the bits of rows that hold a NaN or infinity are
// set.
template <class T>
HWY_INLINE void pack_rows(const View<const T>& from_view, int64_t batch, int64_t head, int64_t begin,
                          int64_t end, float factor, int64_t panel_rows, float* HWY_RESTRICT to,
                          uint64_t* HWY_RESTRICT nonfinite) {
  for (int64_t at = begin; at < end; ++at) {
    const bool finite = pack_row(from_view.at(batch, head, at), from_view.stride[3], from_view.size[3],
                                 factor, panel_rows, at, to);
    if (!finite) nonfinite[at / 64] |= uint64_t{1} << (at % 64);
  }
}

// Sets what is not finite in packed row `at` to 0.
HWY_INLINE void clear_nonfinite(int64_t features, int64_t panel_rows, int64_t at, float* HWY_RESTRICT to) {
  for (int64_t f = 0; f < features; ++f) {
    float& x = to[f / kCols * kCols * panel_rows + at * kCols + f % kCols];
    if (!(x - x == 0.0F)) x = 0.0F;
  }
}

// Whether a row of the words that hold [begin, end) has its flag set.
HWY_INLINE bool any_flag(const uint64_t* words, int64_t begin, int64_t end) {
  uint64_t any = 0;
  for (int64_t word = begin / 64; word * 64 < end; ++word) any |= words[word];
  return any != 0;
}

// Values of keys [begin, end), packed by pack_rows(), but a NaN or infinity becomes 0: the rows that see the
// key get it back (restore_nonfinite), the others never touch it.
template <class T>
HWY_INLINE void pack_values(const View<const T>& v, int64_t batch, int64_t head, int64_t begin, int64_t end,
                            int64_t key_stride, float* HWY_RESTRICT to, uint64_t* HWY_RESTRICT nonfinite) {
  for (int64_t word = begin / 64; word * 64 < end; ++word) nonfinite[word] = 0;
  pack_rows(v, batch, head, begin, end, 1.0F, key_stride, to, nonfinite);
  for (int64_t key = begin; key < end; ++key)
    if (HWY_UNLIKELY((nonfinite[key / 64] >> (key % 64) & 1) != 0))
      clear_nonfinite(v.size[3], key_stride, key, to);
}

// One query row into a stored tile sequence to[Dk / kCols][kRows][kCols] as row r, times factor.
template <class T>
HWY_INLINE void pack_query(const T* from, int64_t stride, int64_t features, float factor, int64_t r,
                           float* HWY_RESTRICT to) {
  for (int64_t f = 0; f < features; f += kCols)
    load_row(from + f * stride, stride, HWY_MIN(kCols, features - f), factor, to + f * kRows + r * kCols);
}

// Writes one output row, times factor. row: kWidth of its features side by side, the next ones `step` floats
// behind.
template <int64_t kWidth>
HWY_INLINE void store_out(const AnyView& out, int64_t batch, int64_t head, int64_t position, float factor,
                          const float* HWY_RESTRICT row, int64_t step) {
  const D d;
  const int64_t stride = out.stride[3], features = out.size[3];
  const int64_t offset = batch * out.stride[0] + head * out.stride[1] + position * out.stride[2];
  const Vec scale = hn::Set(d, factor);
  int64_t f = 0;
  if (out.dtype == DType::f32 && stride == 1 && factor != 0.0F) {
    float* to = static_cast<float*>(out.data) + offset;
    for (; f + kWidth <= features; f += kWidth, row += step)
#pragma GCC unroll 4
      for (int64_t i = 0; i < kWidth; i += kLanes)
        hn::StoreU(hn::Mul(hn::Load(d, row + i), scale), d, to + f + i);
  }
  HWY_ALIGN float scaled[kWidth];
  for (; f < features; f += kWidth, row += step) {
    for (int64_t i = 0; i < kWidth; i += kLanes)
      // Selected, not multiplied by 0: a row that sees nothing is 0.
      hn::Store(factor == 0.0F ? hn::Zero(d) : hn::Mul(hn::Load(d, row + i), scale), d, scaled + i);
    const int64_t n = HWY_MIN(kWidth, features - f);
    with_type(out.dtype, [&](auto element) HWY_ATTR {
      auto* to = static_cast<decltype(element)*>(out.data) + offset + f * stride;
      for (int64_t i = 0; i < n; ++i) round_to(scaled[i], to[i * stride]);
    });
  }
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
