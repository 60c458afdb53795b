// A chunk of linear attention: its keys, its queries, and the decayed products between them. Forward and
// backward are built of these.
#if defined(REGARD_KERNEL_LINEAR_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_LINEAR_CHUNK_INL_H_
#undef REGARD_KERNEL_LINEAR_CHUNK_INL_H_
#else
#define REGARD_KERNEL_LINEAR_CHUNK_INL_H_
#endif

#include "regard/kernel/linear_gates-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

HWY_INLINE Vec map_feature(D d, FeatureMap map, Vec x) {
  const Vec zero = hn::Zero(d);
  switch (map) {
    case FeatureMap::elu1: {
      const auto positive = hn::Gt(x, zero);
      const Vec below = hn::IfThenZeroElse(positive, hn::Mul(x, hn::Set(d, kLog2e)));
      return hn::IfThenElse(positive, hn::Add(x, hn::Set(d, 1.0F)), exp2(d, below));
    }
    case FeatureMap::relu:
      return hn::IfThenZeroElse(hn::Le(x, zero), x);  // a NaN stays one
    case FeatureMap::identity:
      break;
  }
  return x;
}

// Rows of padded width, in place.
HWY_INLINE void map_features(FeatureMap map, int64_t rows, int64_t features, float* HWY_RESTRICT x,
                             int64_t ld) {
  if (map == FeatureMap::identity) return;
  const D d;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t f = 0; f < features; f += kLanes)
      hn::Store(map_feature(d, map, hn::Load(d, x + r * ld + f)), d, x + r * ld + f);
}

// x = the gradient of raw inputs, where it was that of features `mapped`: both maps know their derivative
// from their value.
HWY_INLINE void unmap_gradient(FeatureMap map, int64_t rows, int64_t features,
                               const float* HWY_RESTRICT mapped, float* HWY_RESTRICT x, int64_t ld) {
  if (map == FeatureMap::identity) return;
  const D d;
  const Vec zero = hn::Zero(d);
  const Vec one = hn::Set(d, 1.0F);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t f = 0; f < features; f += kLanes) {
      const int64_t at = r * ld + f;
      const Vec value = hn::Load(d, mapped + at);
      const Vec grad = hn::Load(d, x + at);
      const Vec slope = hn::IfThenElse(hn::Gt(value, one), one, value);
      hn::Store(
          map == FeatureMap::elu1 ? hn::Mul(grad, slope) : hn::IfThenZeroElse(hn::Le(value, zero), grad), d,
          x + at);
    }
}

HWY_INLINE void clear_rows(int64_t begin, int64_t end, int64_t features, float* HWY_RESTRICT x, int64_t ld) {
  const D d;
  for (int64_t r = begin; r < end; ++r)
    for (int64_t f = 0; f < features; f += kLanes) hn::Store(hn::Zero(d), d, x + r * ld + f);
}

// Keys, values and decays of the positions of chunk `index` of a unit.
inline HWY_NOINLINE void load_keys(const Linear& p, const LinearLayout& l, int64_t unit, int64_t index,
                                   LinearKeys& keys) {
  keys.unit = unit;
  keys.batch = unit / l.kv_heads;
  keys.head = unit % l.kv_heads;
  keys.begin = index * l.chunk;
  keys.count = HWY_MIN(l.chunk, p.k.size[2] - keys.begin);
  const int64_t length = p.key_lengths ? p.key_lengths(keys.batch, 0, 0, 0) : p.k.size[2];
  keys.live = HWY_MAX(HWY_MIN(keys.count, length - keys.begin), int64_t{0});
  load_rows(p.k, keys.batch, keys.head, keys.begin, keys.live, keys.k, l.ldk, keys.ahead);
  map_features(p.feature, keys.live, l.dk, keys.k, l.ldk);
  clear_rows(keys.live, keys.count, l.dk, keys.k, l.ldk);
  load_rows(p.v, keys.batch, keys.head, keys.begin, keys.live, keys.v, l.ldv, keys.ahead);
  clear_rows(keys.live, keys.count, l.dv, keys.v, l.ldv);
  load_gates(p, l, keys);
  if (l.delta)
    for (int64_t j = 0; j < keys.count; ++j)
      keys.beta[j] = j < keys.live ? p.beta(keys.batch, keys.head, keys.begin + j, 0) : 0.0F;
}

// What load_keys() leaves out, needed inside the chunk only.
HWY_INLINE void turn_keys(const LinearLayout& l, LinearKeys& keys) {
  transpose(keys.k, l.ldk, keys.count, l.dk, keys.k_t, kChunkLd);
}

HWY_INLINE void load_queries(const Linear& p, const LinearLayout& l, int64_t batch, int64_t head,
                             int64_t index, LinearQueries& queries) {
  queries.batch = batch;
  queries.head = head;
  queries.begin = index * l.chunk;
  queries.count = HWY_MIN(l.chunk, p.q.size[2] - queries.begin);
  load_rows(p.q, batch, head, queries.begin, queries.count, queries.q, l.ldk, queries.ahead);
  map_features(p.feature, queries.count, l.dk, queries.q, l.ldk);
  transpose(queries.q, l.ldk, queries.count, l.dk, queries.q_t, kChunkLd);
}

// to[i] += sum over j <= i (strict: j < i) of weights[i][j] right[j], where some of right is not finite: no
// product with a weight above the diagonal may be taken.
inline HWY_NOINLINE void add_lower_plainly(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT right,
                                           int64_t ld, int64_t count, int64_t features, bool strict,
                                           float* HWY_RESTRICT to) {
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < i + (strict ? 0 : 1); ++j)
      for (int64_t f = 0; f < features; ++f) to[i * ld + f] += weights[i * kChunkLd + j] * right[j * ld + f];
}

// The same with the weights turned: to[j] += sum over i >= j of weights[i][j] right[i].
inline HWY_NOINLINE void add_upper_plainly(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT right,
                                           int64_t ld, int64_t count, int64_t features, bool strict,
                                           float* HWY_RESTRICT to) {
  for (int64_t j = 0; j < count; ++j)
    for (int64_t i = j + (strict ? 1 : 0); i < count; ++i)
      for (int64_t f = 0; f < features; ++f) to[j * ld + f] += weights[i * kChunkLd + j] * right[i * ld + f];
}

// beta of a row times x. Padding has none, also where the state that it would read is not finite.
HWY_INLINE Vec times_beta(D d, const LinearKeys& keys, int64_t row, Vec x) {
  return row < keys.live ? hn::Mul(hn::Set(d, keys.beta[row]), x) : hn::Zero(d);
}

// The rows of a tile one by one, exactly the pairs below the diagonal. sums: of the state and of all rows
// above.
template <int64_t kWidth>
HWY_INLINE void solve_tile(D d, const LinearLayout& l, const LinearKeys& keys, int64_t m, int64_t n,
                           Sums<kWidth>& sums) {
  const float* overlap = keys.overlap + m * kChunkLd + m;
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int64_t i = 0; i < kWidth; ++i) {
      const int64_t at = (m + r) * l.ldv + n + i * kLanes;
      const Vec error = hn::Sub(hn::Load(d, keys.v + at), sums.v[r][i]);
      const Vec written = times_beta(d, keys, m + r, error);
      hn::Store(error, d, keys.error + at);
      hn::Store(written, d, keys.v + at);
#pragma GCC unroll 16
      for (int64_t later = 0; later < kRows; ++later)
        if (later > r)
          sums.v[later][i] = hn::MulAdd(hn::Set(d, overlap[later * kChunkLd + r]), written, sums.v[later][i]);
    }
}

// What the delta rule writes: w_i = beta_i e_i, e_i = v_i - exp(c_i) k_i S - sum over j < i of overlap_ij
// w_j. keys.v becomes w. s: the state before the chunk; nullptr: 0. Columns are strangers to each other, and
// rows follow those above them: a tile takes the rows above as a product, then its own one by one, in
// registers.
inline HWY_NOINLINE void solve_delta(const LinearLayout& l, const float* HWY_RESTRICT s, LinearKeys& keys) {
  const D d;
  const LinearGates& g = keys.gates;
  products(l, g, keys.k, keys.k_t, keys, keys.count, true, keys.overlap);
  const float* left = keys.k_t;
  if (s != nullptr && l.gates == GateKind::feature) {
    for (int64_t i = 0; i < keys.count; ++i)
      multiply_row(d, keys.k + i * l.ldk, g.from_start + i * l.ldk, l.dk, g.key + i * l.ldk);
    transpose(g.key, l.ldk, keys.count, l.dk, g.key_t, kChunkLd);
    left = g.key_t;
  }
  each_tile(keys.count, l.dv, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
    Sums<width> sums;
    clear(d, sums);
    if (s != nullptr) {
      accumulate(d, ByDepth{left + m, kChunkLd}, s + n, l.ldv, l.dk, sums);
      if (l.gates == GateKind::scalar) scale_rows(d, g.from_start + m, sums);
    }
    accumulate(d, ByRow{keys.overlap + m * kChunkLd}, keys.v + n, l.ldv, m, sums);
    solve_tile(d, l, keys, m, n, sums);
  });
}

// keys.v becomes w, where the errors were kept.
inline HWY_NOINLINE void write_errors(const LinearLayout& l, LinearKeys& keys) {
  const D d;
  for (int64_t i = 0; i < keys.count; ++i)
    for (int64_t n = 0; n < l.dv; n += kLanes)
      hn::Store(times_beta(d, keys, i, hn::Load(d, keys.error + i * l.ldv + n)), d, keys.v + i * l.ldv + n);
}

// The keys' part of the state: s = sum of k_end v^T, z = sum of k_end.
inline HWY_NOINLINE void sum_keys(const LinearLayout& l, const LinearKeys& keys, bool with_norm,
                                  const LinearState& to) {
  const D d;
  each_tile(l.dk, l.dv, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
    Sums<width> sums;
    clear(d, sums);
    accumulate(d, ByDepth{keys.k_end + m, l.ldk}, keys.v + n, l.ldv, keys.count, sums);
    store(d, sums, to.s + m * l.ldv + n, l.ldv);
  });
  if (!with_norm) return;
  for (int64_t f = 0; f < l.dk; f += kLanes) {
    Vec sum = hn::Zero(d);
    for (int64_t j = 0; j < keys.count; ++j) sum = hn::Add(sum, hn::Load(d, keys.k_end + j * l.ldk + f));
    hn::Store(sum, d, to.z + f);
  }
}

// state = total * state + added. Without `nonzero` the state counts as 0.
HWY_INLINE void advance(const LinearLayout& l, const LinearState& added, const float* HWY_RESTRICT total,
                        bool nonzero, bool with_norm, const LinearState& state) {
  const D d;
  for (int64_t f = 0; f < l.dk; ++f) {
    const Vec x = hn::Set(d, total[f]);
    for (int64_t n = 0; n < l.dv; n += kLanes) {
      const int64_t at = f * l.ldv + n;
      const Vec sum = hn::Load(d, added.s + at);
      hn::Store(nonzero ? hn::MulAdd(x, hn::Load(d, state.s + at), sum) : sum, d, state.s + at);
    }
    if (with_norm) state.z[f] = nonzero ? std::fma(total[f], state.z[f], added.z[f]) : added.z[f];
  }
}

HWY_INLINE void copy_state(const LinearLayout& l, const LinearState& from, const LinearState& to) {
  std::copy_n(from.s, l.dk * l.ldv, to.s);
  std::copy_n(from.z, l.dk, to.z);
}

// added = what `place` held; place = state, where that is not 0. A chunk's state takes the place of what the
// chunk adds.
HWY_INLINE void take_place(const LinearLayout& l, const LinearState& place, const LinearState& added,
                           bool nonzero, const LinearState& state) {
  copy_state(l, place, added);
  if (nonzero) copy_state(l, state, place);
}

HWY_INLINE bool has_norm(const Linear& p) {
  return p.divide != Denominator::none;
}

// The state before the first key; whether there is one.
HWY_INLINE bool read_state(const Linear& p, const LinearLayout& l, int64_t unit, const LinearState& state) {
  const int64_t batch = unit / l.kv_heads;
  const int64_t head = unit % l.kv_heads;
  if (!p.state && !p.norm) return false;
  for (int64_t f = 0; f < l.dk; ++f) {
    if (p.state)
      load_row(p.state.at(batch, head, f), p.state.stride[3], l.dv, 1.0F, state.s + f * l.ldv);
    else
      fill_row(D(), 0.0F, l.dv, state.s + f * l.ldv);
    state.z[f] = p.norm ? p.norm(batch, head, f, 0) : 0.0F;
  }
  return true;
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
