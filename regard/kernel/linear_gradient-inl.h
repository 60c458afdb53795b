// Gradients inside a chunk of linear attention. A chunk is a small attention of its own, without a softmax:
// weights and their gradients are made and multiplied with what lies in the cache; what the state before and
// the gradient of the state behind contribute are products with those.
#if defined(REGARD_KERNEL_LINEAR_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_LINEAR_GRADIENT_INL_H_
#undef REGARD_KERNEL_LINEAR_GRADIENT_INL_H_
#else
#define REGARD_KERNEL_LINEAR_GRADIENT_INL_H_
#endif

#include "regard/kernel/linear_chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// grad_k and grad_v as far as the gradient of the state behind the chunk makes them. grad_state_t: turned;
// nullptr: 0.
inline HWY_NOINLINE void start_keys(const LinearLayout& l, const LinearKeys& keys,
                                    const float* HWY_RESTRICT grad_state_t, const LinearState* grad,
                                    int64_t depth, LinearBackwardScratch& s) {
  const D d;
  const LinearGates& g = keys.gates;
  if (grad == nullptr) {
    clear_rows(0, kChunkRows, l.dk, s.grad_k, l.ldk);
    clear_rows(0, kChunkRows, l.dv, s.grad_v, l.ldv);
    return;
  }
  each_tile(keys.count, l.dk, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
    Sums<width> sums;
    clear(d, sums);
    accumulate(d, ByDepth{s.v_t + m, kChunkLd}, grad_state_t + n, l.ldk, depth, sums);
    if (l.gates == GateKind::scalar) scale_rows(d, g.to_end + m, sums);
    if (l.gates == GateKind::feature) scale_elements(d, g.to_end + m * l.ldk + n, l.ldk, sums);
    store(d, sums, s.grad_k + m * l.ldk + n, l.ldk);
  });
  const float* left = keys.k_t;
  if (l.gates == GateKind::feature) {
    transpose(keys.k_end, l.ldk, keys.count, l.dk, g.key_t, kChunkLd);
    left = g.key_t;
  }
  each_tile(keys.count, l.dv, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
    Sums<width> sums;
    clear(d, sums);
    accumulate(d, ByDepth{left + m, kChunkLd}, grad->s + n, l.ldv, l.dk, sums);
    if (l.gates == GateKind::scalar) scale_rows(d, g.to_end + m, sums);
    store(d, sums, s.grad_v + m * l.ldv + n, l.ldv);
  });
}

// grad_q as far as the state before makes it; nullptr: 0. Without decay where no key of the chunk is read.
HWY_INLINE void read_gradient(const LinearLayout& l, const LinearGates& g, const float* HWY_RESTRICT state_t,
                              int64_t depth, int64_t count, LinearBackwardScratch& s) {
  const D d;
  if (state_t == nullptr) return clear_rows(0, kChunkRows, l.dk, s.grad_q, l.ldk);
  each_tile(count, l.dk, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
    Sums<width> sums;
    clear(d, sums);
    accumulate(d, ByDepth{s.grad_t + m, kChunkLd}, state_t + n, l.ldk, depth, sums);
    if (l.gates == GateKind::scalar) scale_rows(d, g.from_start + m, sums);
    if (l.gates == GateKind::feature) scale_elements(d, g.from_start + m * l.ldk + n, l.ldk, sums);
    store(d, sums, s.grad_q + m * l.ldk + n, l.ldk);
  });
}

// to[i] += sum over j <= i of weights[i][j] right[j].
HWY_INLINE void add_lower(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT right, int64_t ld,
                          int64_t count, int64_t features, bool strict, float* HWY_RESTRICT to) {
  const D d;
  if (HWY_UNLIKELY(!all_finite(right, ld, count, features)))
    return add_lower_plainly(weights, right, ld, count, features, strict, to);
  each_tile(count, features, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
    Sums<width> sums;
    load(d, to + m * ld + n, ld, sums);
    accumulate(d, ByRow{weights + m * kChunkLd}, right + n, ld, HWY_MIN(m + kRows, count), sums);
    store(d, sums, to + m * ld + n, ld);
  });
}

// to[j] += sum over i >= j of weights[i][j] right[i].
HWY_INLINE void add_upper(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT right, int64_t ld,
                          int64_t count, int64_t features, bool strict, float* HWY_RESTRICT to) {
  const D d;
  if (HWY_UNLIKELY(!all_finite(right, ld, count, features)))
    return add_upper_plainly(weights, right, ld, count, features, strict, to);
  each_tile(count, features, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
    Sums<width> sums;
    load(d, to + m * ld + n, ld, sums);
    accumulate(d, ByDepth{weights + m * kChunkLd + m, kChunkLd}, right + m * ld + n, ld, count - m, sums);
    store(d, sums, to + m * ld + n, ld);
  });
}

// What rows before the block of 16 queries that begins at `begin` give: grad_q += entry (weights key), and
// grad_k += reach (weights^T query), rows of the block alone.
HWY_INLINE void add_gate_block(const LinearLayout& l, const LinearKeys& keys, const float* HWY_RESTRICT q,
                               const float* HWY_RESTRICT weights, int64_t begin, int64_t end,
                               LinearBackwardScratch& s) {
  const D d;
  const LinearGates& g = keys.gates;
  extend_reach(l, g, begin);
  enter_block(l, g, q, begin, end);
  for (int64_t j = 0; j < begin; ++j)
    multiply_row(d, keys.k + j * l.ldk, g.reach + j * l.ldk, l.dk, g.key + j * l.ldk);
  const auto add_rows = [&](const auto& sums, int64_t rows, const float* factors, float* to) HWY_ATTR {
    constexpr int64_t kWidth = sizeof(sums.v[0]) / sizeof(Vec);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < kWidth; ++i) {
        const int64_t at = r * l.ldk + i * kLanes;
        hn::Store(hn::MulAdd(sums.v[r][i], hn::Load(d, factors + at), hn::Load(d, to + at)), d, to + at);
      }
  };
  each_tile(end - begin, l.dk, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
    Sums<width> sums;
    clear(d, sums);
    accumulate(d, ByRow{weights + (begin + m) * kChunkLd}, g.key + n, l.ldk, begin, sums);
    add_rows(sums, HWY_MIN(kRows, end - begin - m), g.entry + m * l.ldk + n,
             s.grad_q + (begin + m) * l.ldk + n);
  });
  each_tile(begin, l.dk, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
    Sums<width> sums;
    clear(d, sums);
    accumulate(d, ByDepth{weights + begin * kChunkLd + m, kChunkLd}, g.query + n, l.ldk, end - begin, sums);
    add_rows(sums, HWY_MIN(kRows, begin - m), g.reach + m * l.ldk + n, s.grad_k + m * l.ldk + n);
  });
}

// grad_q and grad_k from gradients of weights that decay by feature.
inline HWY_NOINLINE void add_feature_gradients(const LinearLayout& l, const LinearKeys& keys,
                                               const float* HWY_RESTRICT q, const float* HWY_RESTRICT weights,
                                               bool strict, LinearBackwardScratch& s) {
  const D d;
  const LinearGates& g = keys.gates;
  for (int64_t begin = 0; begin < keys.count; begin += kGateBlock) {
    const int64_t end = HWY_MIN(begin + kGateBlock, keys.count);
    if (begin > 0) add_gate_block(l, keys, q, weights, begin, end, s);
    for (int64_t j = begin; j < end; ++j) {
      float* decay = g.query;  // from j to i
      fill_row(d, 1.0F, l.dk, decay);
      for (int64_t i = j; i < end; ++i) {
        if (i > j) multiply_row(d, decay, g.step + i * l.ldk, l.dk, decay);
        if (strict && i == j) continue;
        const Vec x = hn::Set(d, weights[i * kChunkLd + j]);
        for (int64_t f = 0; f < l.dk; f += kLanes) {
          const Vec decayed = hn::Mul(x, hn::Load(d, decay + f));
          float* to_q = s.grad_q + i * l.ldk + f;
          float* to_k = s.grad_k + j * l.ldk + f;
          hn::Store(hn::MulAdd(decayed, hn::Load(d, keys.k + j * l.ldk + f), hn::Load(d, to_q)), d, to_q);
          hn::Store(hn::MulAdd(decayed, hn::Load(d, q + i * l.ldk + f), hn::Load(d, to_k)), d, to_k);
        }
      }
    }
  }
}

// Decays by feature: the gradient of c_i is q_i grad_q_i - k_i grad_k_i, where keys that ask count as
// queries: each product has c once, with the sign of its side. s.gates sums it up, [position][feature].
HWY_INLINE void begin_gate_gradient(const LinearLayout& l, int64_t count, LinearBackwardScratch& s) {
  if (l.gates == GateKind::feature) clear_rows(0, count, l.dk, s.gates, l.ldk);
  if (l.gates != GateKind::scalar) return;
  for (int64_t i = 0; i < count; ++i) s.row_gates[i] = s.key_gates[i] = 0.0;
}

HWY_INLINE void add_feature_gates(const LinearLayout& l, int64_t count, const float* HWY_RESTRICT a,
                                  const float* HWY_RESTRICT grad, float sign, LinearBackwardScratch& s) {
  const D d;
  if (l.gates != GateKind::feature) return;
  const Vec x = hn::Set(d, sign);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t f = 0; f < l.dk; f += kLanes) {
      const int64_t at = i * l.ldk + f;
      const Vec term = hn::Mul(hn::Load(d, a + at), hn::Load(d, grad + at));
      hn::Store(hn::MulAdd(x, term, hn::Load(d, s.gates + at)), d, s.gates + at);
    }
}

// One decay a position: a step's gradient is the sum of weight times its gradient over the pairs that it
// stands between, of what rows from it on read of the state before, of what earlier keys leave to the state
// behind, and of what the one gives the other. Differences of whole rows and columns would lose digits, so
// pairs are summed in float64, where those that cancel do so exactly.
HWY_INLINE void add_rows_times(const LinearLayout& l, int64_t count, const float* HWY_RESTRICT a,
                               const float* HWY_RESTRICT b, double* HWY_RESTRICT to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += static_cast<double>(dot(D(), a + i * l.ldk, b + i * l.ldk, l.dk));
}

inline HWY_NOINLINE void add_pair_gates(const LinearGates& g, int64_t count,
                                        const float* HWY_RESTRICT weights, LinearBackwardScratch& s) {
  const D d;
  HWY_ALIGN float pairs[kChunkLd];
  for (int64_t i = 1; i < count; ++i) {
    for (int64_t j = 0; j < i; j += kLanes) {
      const Vec high = hn::Sub(hn::Set(d, g.high[i]), hn::Load(d, g.high + j));
      const Vec low = hn::Sub(hn::Set(d, g.low[i]), hn::Load(d, g.low + j));
      const Vec decay = decay_factor(d, hn::Add(high, low));
      // Both hold the decay.
      const Vec both =
          hn::Mul(hn::Load(d, weights + i * kChunkLd + j), hn::Load(d, s.grad_weights + i * kChunkLd + j));
      hn::Store(hn::IfThenZeroElse(hn::Eq(decay, hn::Zero(d)), hn::Div(both, decay)), d, pairs + j);
    }
    double sum = 0.0;
    for (int64_t j = 0; j < i; ++j) {
      const auto pair = static_cast<double>(pairs[j]);
      sum += pair;
      s.row_gates[j] -= pair;
    }
    s.row_gates[i] += sum;
  }
}

// before, grad: the state before the chunk, and the gradient of the one behind it, `after`; nullptr: 0.
inline HWY_NOINLINE void store_gate_gradient(const View<float>& to, const LinearLayout& l,
                                             const LinearKeys& keys, const LinearState* before,
                                             const LinearState* grad, const LinearState& after,
                                             bool with_norm, LinearBackwardScratch& s) {
  const auto common = [&](const LinearState& state, int64_t f) HWY_ATTR {
    double sum = static_cast<double>(dot(D(), grad->s + f * l.ldv, state.s + f * l.ldv, l.dv));
    if (with_norm) sum += static_cast<double>(grad->z[f]) * static_cast<double>(state.z[f]);
    return sum;
  };
  const auto set = [&](int64_t i, int64_t f, double value) HWY_ATTR {
    to(keys.batch, keys.head, keys.begin + i, f) = i < keys.live ? static_cast<float>(value) : 0.0F;
  };
  if (l.gates == GateKind::feature) {
    for (int64_t f = 0; f < l.dk; ++f) {
      double sum = grad == nullptr ? 0.0 : common(after, f);
      for (int64_t i = keys.count - 1; i >= 0; --i)
        set(i, f, sum += static_cast<double>(s.gates[i * l.ldk + f]));
    }
    return;
  }
  double kept = 0.0;
  if (before != nullptr && grad != nullptr)
    for (int64_t f = 0; f < l.dk; ++f) kept += static_cast<double>(keys.gates.total[f]) * common(*before, f);
  double earlier = 0.0;
  for (int64_t j = 0; j < keys.count; ++j) earlier += s.key_gates[j];
  double later = 0.0;
  for (int64_t i = keys.count - 1; i >= 0; --i) {
    earlier -= s.key_gates[i];
    later += s.row_gates[i];
    set(i, 0, kept + earlier + later);
  }
}

// grad_q of one head's queries, and their part of grad_k. q: [position][ldk]; s.grad and s.grad_t: the
// gradient of their sums; weights: the head's, where gradients of decays are wanted, else nullptr.
inline HWY_NOINLINE void chunk_gradient(const LinearLayout& l, const LinearKeys& keys,
                                        const float* HWY_RESTRICT q, const float* HWY_RESTRICT state_t,
                                        int64_t depth, bool strict, const float* HWY_RESTRICT weights,
                                        LinearBackwardScratch& s) {
  scalar_products(l.gates == GateKind::scalar ? &keys.gates : nullptr, s.grad_t, s.v_t, depth, keys.count,
                  strict, s.grad_weights);
  read_gradient(l, keys.gates, state_t, depth, keys.count, s);
  if (weights != nullptr && l.gates == GateKind::scalar) {
    add_rows_times(l, keys.count, q, s.grad_q, s.row_gates);
    add_pair_gates(keys.gates, keys.count, weights, s);
  }
  if (l.gates == GateKind::feature) return add_feature_gradients(l, keys, q, s.grad_weights, strict, s);
  add_lower(s.grad_weights, keys.k, l.ldk, keys.count, l.dk, strict, s.grad_q);
  add_upper(s.grad_weights, q, l.ldk, keys.count, l.dk, strict, s.grad_k);
}

// to (+)= what the queries add to the gradient of the state before the chunk: decayed q times s.grad.
inline HWY_NOINLINE void sum_queries(const LinearLayout& l, const LinearGates& g, bool causal,
                                     const float* HWY_RESTRICT q, int64_t count, bool with_norm, bool first,
                                     LinearBackwardScratch& s, const LinearState& to) {
  const D d;
  const float* left = q;
  if (causal && l.gates != GateKind::none) {
    for (int64_t i = 0; i < count; ++i)
      for (int64_t f = 0; f < l.dk; f += kLanes) {
        const Vec decay = l.gates == GateKind::scalar ? hn::Set(d, g.from_start[i])
                                                      : hn::Load(d, g.from_start + i * l.ldk + f);
        hn::Store(hn::Mul(hn::Load(d, q + i * l.ldk + f), decay), d, s.q_start + i * l.ldk + f);
      }
    left = s.q_start;
  }
  each_tile(l.dk, l.dv, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
    Sums<width> sums;
    float* at = to.s + m * l.ldv + n;
    if (first)
      clear(d, sums);
    else
      load(d, at, l.ldv, sums);
    accumulate(d, ByDepth{left + m, l.ldk}, s.grad + n, l.ldv, count, sums);
    store(d, sums, at, l.ldv);
  });
  if (!with_norm) return;
  for (int64_t f = 0; f < l.dk; f += kLanes) {
    Vec sum = first ? hn::Zero(d) : hn::Load(d, to.z + f);
    for (int64_t i = 0; i < count; ++i)
      sum = hn::MulAdd(hn::Load(d, left + i * l.ldk + f), hn::Set(d, s.grad_sum[i]), sum);
    hn::Store(sum, d, to.z + f);
  }
}

// solve_tile(), from the last row of the tile to the first. sums: of all rows below.
template <int64_t kWidth>
HWY_INLINE void solve_tile_backward(D d, const LinearLayout& l, const LinearKeys& keys, int64_t m, int64_t n,
                                    Sums<kWidth>& sums, LinearBackwardScratch& s) {
  const float* overlap = keys.overlap + m * kChunkLd + m;
#pragma GCC unroll 16
  for (int64_t r = kRows - 1; r >= 0; --r)
#pragma GCC unroll 16
    for (int64_t i = 0; i < kWidth; ++i) {
      const int64_t at = (m + r) * l.ldv + n + i * kLanes;
      const Vec x = hn::Sub(hn::Load(d, s.grad_v + at), sums.v[r][i]);
      const Vec back = times_beta(d, keys, m + r, x);
      hn::Store(x, d, s.grad + at);
      hn::Store(back, d, s.grad_v + at);
      if (m + r >= keys.live) continue;  // what lies in the overlaps of padding may be no number
#pragma GCC unroll 16
      for (int64_t earlier = 0; earlier < kRows; ++earlier)
        if (earlier < r)
          sums.v[earlier][i] =
              hn::MulAdd(hn::Set(d, overlap[r * kChunkLd + earlier]), back, sums.v[earlier][i]);
    }
}

// The delta rule backward: with x the gradient of what was written (grad_v, all heads and the state),
//   r_i = x_i - sum over j > i of overlap_ji beta_j r_j, the gradient of error_i / beta_i; then
//   grad_v = beta r, grad_beta = r . error, and the keys' question to the state has the gradient -beta r.
// As solve_delta(), from the last tile to the first.
inline HWY_NOINLINE void solve_delta_backward(const LinearLayout& l, const LinearKeys& keys,
                                              LinearBackwardScratch& s) {
  const D d;
  const int64_t last = (keys.count - 1) / kRows * kRows;
  each_tile(keys.count, l.dv, [&](auto width, int64_t above, int64_t n) HWY_ATTR {
    const int64_t m = last - above;
    const int64_t next = m + kRows;
    Sums<width> sums;
    clear(d, sums);
    accumulate(d, ByDepth{keys.overlap + next * kChunkLd + m, kChunkLd}, s.grad_v + next * l.ldv + n, l.ldv,
               keys.live - next, sums);
    solve_tile_backward(d, l, keys, m, n, sums, s);
  });
  for (int64_t i = 0; i < keys.count; ++i) {
    float* row = s.grad + i * l.ldv;
    s.grad_beta[i] = i < keys.live ? dot(d, row, keys.error + i * l.ldv, l.dv) : 0.0F;
    for (int64_t n = 0; n < l.dv; n += kLanes)
      hn::Store(hn::Neg(hn::Load(d, s.grad_v + i * l.ldv + n)), d, row + n);
  }
  transpose(s.grad, l.ldv, keys.count, l.dv, s.grad_t, kChunkLd);
}

// Gradients of what the head's weights multiplied.
HWY_INLINE void add_weighted_rows(const LinearLayout& l, const float* HWY_RESTRICT weights,
                                  const float* HWY_RESTRICT grad, int64_t count, float* HWY_RESTRICT grad_v) {
  add_upper(weights, grad, l.ldv, count, l.dv, false, grad_v);
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
