// The tile of additive scores. tanh(q + k) = 1 - 2 r with r = 1 / (1 + e^2q e^2k): the exponentials are of
// rows and of keys, so that a pair of features costs one product, one sum and one division instead of a whole
// tanh.
#if defined(REGARD_KERNEL_ADDITIVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_ADDITIVE_INL_H_
#undef REGARD_KERNEL_ADDITIVE_INL_H_
#else
#define REGARD_KERNEL_ADDITIVE_INL_H_
#endif

#include <cmath>

#include "regard/kernel/additive_layout.h"
#include "regard/kernel/strip-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Where e^2x stays far from overflow: a product of two may become infinite or 0, which is right, but is never
// infinity times 0. Rows and keys beyond it take the plain tanh.
constexpr float kFactorable = 40.0F;
// Where 1 + e^2(q + k) of two features can be multiplied: the pair shares a division.
constexpr float kPairable = 10.5F;

// e^2x, relative error below 2e-7 also where 2x is large: the argument is kept in two parts.
HWY_INLINE Vec exp_twice(D d, Vec x) {
  const Vec high = hn::Mul(x, hn::Set(d, 2.0F * kLog2e));
  const Vec rest = hn::MulAdd(x, hn::Set(d, 3.8519261e-8F), hn::MulSub(x, hn::Set(d, 2.0F * kLog2e), high));
  const Vec power = exp2(d, high);
  return hn::MulAdd(hn::Mul(power, rest), hn::Set(d, static_cast<float>(kLn2)), power);
}

// Writes `count` numbers e^2x behind the `count` numbers x at `from`. The sign of the first, which is free,
// says what may be done with them: minus: some x is not pairable; minus infinity: some x is not factorable.
// count: a multiple of kLanes.
HWY_INLINE void append_exponentials(float* from, int64_t count) {
  const D d;
  auto beyond = hn::Lt(hn::Zero(d), hn::Zero(d));
  auto apart = beyond;
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec x = hn::Load(d, from + i);
    beyond = hn::Or(beyond, hn::Gt(hn::Abs(x), hn::Set(d, kFactorable)));
    apart = hn::Or(apart, hn::Gt(hn::Abs(x), hn::Set(d, kPairable)));
    hn::Store(exp_twice(d, x), d, from + count + i);
  }
  if (count == 0) return;
  if (!hn::AllFalse(d, beyond))
    from[count] = -HUGE_VALF;
  else if (!hn::AllFalse(d, apart))
    from[count] = -from[count];
}

// A tile of rows packed for additive scores: [features][kRows] padded to vectors, then their e^2x.
HWY_INLINE int64_t additive_row_floats(int64_t features) {
  return round_up(features * kRows, kMaxLanes);
}

// With y = 1 + e^2(q + k): single(feature, row, vector, y) for features of a tile, or where products of two y
// are safe, pair(feature, row, vector, y, y of the next feature).
template <class Single, class Pair>
HWY_INLINE void each_feature(int64_t features, const float* HWY_RESTRICT rows, const float* HWY_RESTRICT keys,
                             Single&& single, Pair&& pair) {
  const D d;
  const Vec one = hn::Set(d, 1.0F);
  const float* row_powers = rows + additive_row_floats(features);
  const float* key_powers = keys + features * kCols;
  if (features == 0) return;
  // Comparisons that a NaN fails: it goes its way through either form, but must not hide the other side's
  // sign.
  if (HWY_UNLIKELY(row_powers[0] == -HUGE_VALF || key_powers[0] == -HUGE_VALF)) {
    for (int64_t f = 0; f < features; ++f)
      for (int64_t n = 0; n < kVecs; ++n) {
        const Vec key = hn::Load(d, keys + f * kCols + n * kLanes);
        for (int64_t i = 0; i < kRows; ++i) {
          const Vec t = tanh(d, hn::Add(hn::Set(d, rows[f * kRows + i]), key));
          single(f, i, n, hn::Div(hn::Set(d, 2.0F), hn::Sub(one, t)));  // infinite where tanh is 1
        }
      }
    return;
  }
  int64_t f = 0;
  if (HWY_LIKELY(!(row_powers[0] < 0.0F) && !(key_powers[0] < 0.0F)))
    for (; f + 1 < features; f += 2)
#pragma GCC unroll 4
      for (int64_t n = 0; n < kVecs; ++n) {
        const Vec first = hn::Load(d, key_powers + f * kCols + n * kLanes);
        const Vec second = hn::Load(d, key_powers + (f + 1) * kCols + n * kLanes);
#pragma GCC unroll 16
        for (int64_t i = 0; i < kRows; ++i)
          pair(f, i, n, hn::MulAdd(hn::Set(d, row_powers[f * kRows + i]), first, one),
               hn::MulAdd(hn::Set(d, row_powers[(f + 1) * kRows + i]), second, one));
      }
  for (; f < features; ++f)
#pragma GCC unroll 4
    for (int64_t n = 0; n < kVecs; ++n) {
      // Without the first one's sign.
      const Vec key = hn::Abs(hn::Load(d, key_powers + f * kCols + n * kLanes));
#pragma GCC unroll 16
      for (int64_t i = 0; i < kRows; ++i)
        single(f, i, n, hn::MulAdd(hn::Abs(hn::Set(d, row_powers[f * kRows + i])), key, one));
    }
}

// The vector of a head in the units of a tile's products: [features] of -2 vector, then the sum of vector.
struct HeadVector {
  const float* twice;
  float sum;
};

// Those of all heads, [B * Hq][vector_floats]; factor: what scores are multiplied by.
inline void pack_vectors(const Additive& problem, int64_t vector_floats, float factor, float* to) {
  const Forward& p = problem.forward;
  for (int64_t head = 0; head < p.q.size[0] * p.q.size[1]; ++head) {
    double sum = 0.0;
    float* at = to + head * vector_floats;
    for (int64_t f = 0; f < p.q.size[3]; ++f) {
      const float x = problem.vector(head / p.q.size[1], head % p.q.size[1], 0, f) * factor;
      at[f] = -2.0F * x;
      sum += static_cast<double>(x);
    }
    at[p.q.size[3]] = static_cast<float>(sum);
  }
}

// A tile of query rows; rows past `count` become 0.
template <class T>
HWY_INLINE void pack_additive_rows(const View<const T>& q, int64_t batch, int64_t head, int64_t begin,
                                   int64_t count, float* HWY_RESTRICT to) {
  const int64_t features = q.size[3];
  const int64_t floats = additive_row_floats(features);
  for (int64_t i = 0; i < floats; ++i) to[i] = 0.0F;
  for (int64_t r = 0; r < count; ++r) {
    const T* from = q.at(batch, head, begin + r);
    for (int64_t f = 0; f < features; ++f) to[f * kRows + r] = to_float(from[f * q.stride[3]]);
  }
  append_exponentials(to, floats);
}

// Keys [begin, end) of one head into panels [2][features][kCols]: x, then e^2x. As pack_keys().
template <class T>
HWY_INLINE void pack_additive_keys(const View<const T>& k, int64_t batch, int64_t head, int64_t begin,
                                   int64_t end, float* staging, float* HWY_RESTRICT to) {
  const int64_t features = k.size[3];
  for (int64_t key = begin; key < end; key += kCols) {
    View<const T> from = k;
    from.data = k.at(batch, head, key);
    float* panel = to + key * 2 * features;
    pack_keys(from, 0, 0, 0, HWY_MIN(kCols, end - key), staging, panel);
    append_exponentials(panel, features * kCols);
  }
}

// The scores of a strip, see DotScores.
template <class T>
struct AdditiveScores {
  int64_t features;      // of a packed key
  int64_t inputs;        // of k
  const float* vectors;  // [B * Hq][AdditiveLayout::vector_floats]
  int64_t vector_floats, heads;

  void pack(const Forward& p, int64_t batch, int64_t head, int64_t begin, int64_t end, const Panels& panels,
            float* staging) const {
    pack_additive_keys(p.k.as<const T>(), batch, head, begin, end, staging, panels.keys);
    if (p.out)
      pack_values(p.v.as<const T>(), batch, head, begin, end, panels.key_stride, panels.values,
                  panels.nonfinite);
  }

  HWY_INLINE void load_queries(const Forward& p, const LogitRule& /*rule*/, const Rows& rows,
                               const StripScratch& s) const {
    for (int64_t r = 0; r < rows.count; r += kRows)
      pack_additive_rows(p.q.as<const T>(), rows.batch, rows.head, rows.begin + r,
                         HWY_MIN(kRows, rows.count - r), s.q + r / kRows * s.q_stride);
  }

  HeadVector vector_of(int64_t batch, int64_t head) const {
    const float* at = vectors + (batch * heads + head) * vector_floats;
    return {at, at[inputs]};
  }

  HWY_INLINE bool multiply(const Rows& rows, const float* q, const float* keys, Accumulators& acc) const {
    const D d;
    const HeadVector vector = vector_of(rows.batch, rows.head);
#pragma GCC unroll 16
    for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int64_t n = 0; n < kVecs; ++n) acc.v[r][n] = hn::Set(d, vector.sum);
    each_feature(
        inputs, q, keys,
        [&](int64_t f, int64_t i, int64_t n, Vec y)
            HWY_ATTR { acc.v[i][n] = hn::Add(acc.v[i][n], hn::Div(hn::Set(d, vector.twice[f]), y)); },
        [&](int64_t f, int64_t i, int64_t n, Vec y, Vec next) HWY_ATTR {
          // a / y + b / z = (a z + b y) / (y z)
          const Vec above =
              hn::MulAdd(hn::Set(d, vector.twice[f]), next, hn::Mul(hn::Set(d, vector.twice[f + 1]), y));
          acc.v[i][n] = hn::Add(acc.v[i][n], hn::Div(above, hn::Mul(y, next)));
        });
    return true;
  }
  HWY_INLINE void finish(const Rows& /*rows*/, const float* /*q*/, const float* /*keys*/,
                         float* /*tile*/) const {}
};

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
