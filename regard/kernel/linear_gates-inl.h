// Decays inside a chunk, and the products of queries and keys that they weigh.
#if defined(REGARD_KERNEL_LINEAR_GATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_LINEAR_GATES_INL_H_
#undef REGARD_KERNEL_LINEAR_GATES_INL_H_
#else
#define REGARD_KERNEL_LINEAR_GATES_INL_H_
#endif

#include "regard/kernel/linear_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Queries of a block whose decays by feature are multiplied out one by one; keys before the block take two
// factors, each at most 1, that meet at its beginning. No exponential of a large sum is ever formed.
constexpr int64_t kGateBlock = 16;

// 2^kForget is 0 in float32: a log decay of -infinity, which forgets everything, need not be added up.
constexpr double kForget = -256.0;

HWY_INLINE void multiply_row(D d, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t features,
                             float* HWY_RESTRICT to) {
  for (int64_t f = 0; f < features; f += kLanes)
    hn::Store(hn::Mul(hn::Load(d, a + f), hn::Load(d, b + f)), d, to + f);
}

HWY_INLINE void fill_row(D d, float value, int64_t features, float* HWY_RESTRICT to) {
  for (int64_t f = 0; f < features; f += kLanes) hn::Store(hn::Set(d, value), d, to + f);
}

HWY_INLINE void copy_row(D d, const float* HWY_RESTRICT from, int64_t features, float* HWY_RESTRICT to) {
  for (int64_t f = 0; f < features; f += kLanes) hn::Store(hn::Load(d, from + f), d, to + f);
}

// 2^x for any x that a decay can be; growth ends at 2^126.
HWY_INLINE Vec decay_factor(D d, Vec x) {
  const Vec most = hn::Set(d, 126.0F);
  return exp2(d, hn::IfThenElse(hn::Gt(x, most), most, x));
}

inline HWY_NOINLINE void load_scalar_gates(const Linear& p, const LinearLayout& l, LinearKeys& keys) {
  const D d;
  const LinearGates& g = keys.gates;
  double sum = 0.0;
  for (int64_t i = 0; i < keys.count; ++i) {
    if (i < keys.live) {
      const double step = static_cast<double>(p.log_decay(keys.batch, keys.head, keys.begin + i, 0)) / kLn2;
      sum += step < kForget ? kForget : step;
    }
    g.high[i] = static_cast<float>(sum);
    g.low[i] = static_cast<float>(sum - static_cast<double>(g.high[i]));
  }
  const int64_t last = keys.count - 1;
  const Vec high = hn::Set(d, g.high[last]);
  const Vec low = hn::Set(d, g.low[last]);
  for (int64_t i = 0; i < keys.count; i += kLanes) {
    const Vec h = hn::Load(d, g.high + i);
    const Vec w = hn::Load(d, g.low + i);
    hn::Store(decay_factor(d, hn::Add(h, w)), d, g.from_start + i);
    hn::Store(decay_factor(d, hn::Add(hn::Sub(high, h), hn::Sub(low, w))), d, g.to_end + i);
  }
  fill_row(d, g.from_start[last], l.dk, g.total);
  for (int64_t j = 0; j < keys.count; ++j) {
    const Vec x = hn::Set(d, g.to_end[j]);
    for (int64_t f = 0; f < l.dk; f += kLanes)
      hn::Store(hn::Mul(hn::Load(d, keys.k + j * l.ldk + f), x), d, keys.k_end + j * l.ldk + f);
  }
}

inline HWY_NOINLINE void load_feature_gates(const Linear& p, const LinearLayout& l, LinearKeys& keys) {
  const D d;
  const LinearGates& g = keys.gates;
  for (int64_t i = 0; i < keys.count; ++i) {
    float* step = g.step + i * l.ldk;
    if (i >= keys.live) {
      fill_row(d, 1.0F, l.dk, step);
    } else {
      load_row(p.log_decay.at(keys.batch, keys.head, keys.begin + i), p.log_decay.stride[3], l.dk, kLog2e,
               step);
      for (int64_t f = 0; f < l.dk; f += kLanes)
        hn::Store(decay_factor(d, hn::Load(d, step + f)), d, step + f);
    }
    if (i == 0)
      copy_row(d, step, l.dk, g.from_start);
    else
      multiply_row(d, g.from_start + (i - 1) * l.ldk, step, l.dk, g.from_start + i * l.ldk);
  }
  const int64_t last = keys.count - 1;
  copy_row(d, g.from_start + last * l.ldk, l.dk, g.total);
  fill_row(d, 1.0F, l.dk, g.to_end + last * l.ldk);
  for (int64_t j = last; j > 0; --j)
    multiply_row(d, g.to_end + j * l.ldk, g.step + j * l.ldk, l.dk, g.to_end + (j - 1) * l.ldk);
  for (int64_t j = 0; j < keys.count; ++j)
    multiply_row(d, keys.k + j * l.ldk, g.to_end + j * l.ldk, l.dk, keys.k_end + j * l.ldk);
}

HWY_INLINE void load_gates(const Linear& p, const LinearLayout& l, LinearKeys& keys) {
  if (l.gates == GateKind::scalar) return load_scalar_gates(p, l, keys);
  if (l.gates == GateKind::feature) return load_feature_gates(p, l, keys);
  fill_row(D(), 1.0F, l.dk, keys.gates.total);
}

// The products of rows m and columns n become weights: decayed, and 0 above the diagonal.
template <int64_t kWidth>
HWY_INLINE void weigh(D d, const LinearGates* g, int64_t m, int64_t n, bool strict, Sums<kWidth>& sums) {
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 16
    for (int64_t i = 0; i < kWidth; ++i) {
      const int64_t column = n + i * kLanes;
      const Vec place = hn::Iota(d, static_cast<float>(column));
      const auto seen = hn::Lt(place, hn::Set(d, static_cast<float>(m + r + (strict ? 0 : 1))));
      Vec x = sums.v[r][i];
      if (g != nullptr) {
        const Vec high = hn::Sub(hn::Set(d, g->high[m + r]), hn::Load(d, g->high + column));
        const Vec low = hn::Sub(hn::Set(d, g->low[m + r]), hn::Load(d, g->low + column));
        x = hn::Mul(x, decay_factor(d, hn::Add(high, low)));
      }
      sums.v[r][i] = hn::IfThenElseZero(seen, x);
    }
}

// weights[i][j] = exp(c_i - c_j) a_i b_j for j <= i (strict: j < i), 0 above, for all tiles that reach the
// diagonal; the others are not touched. a_t, b_t: [depth][position].
inline HWY_NOINLINE void scalar_products(const LinearGates* g, const float* HWY_RESTRICT a_t,
                                         const float* HWY_RESTRICT b_t, int64_t depth, int64_t count,
                                         bool strict, float* HWY_RESTRICT weights) {
  const D d;
  each_tile(count, count, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
    if (n >= m + kRows) return;
    Sums<width> sums;
    clear(d, sums);
    accumulate(d, ByDepth{a_t + m, kChunkLd}, b_t + n, kChunkLd, depth, sums);
    float* to = weights + m * kChunkLd + n;
    if (g == nullptr && n + kCols <= m) return store(d, sums, to, kChunkLd);
    weigh(d, g, m, n, strict, sums);
    store(d, sums, to, kChunkLd);
  });
}

// Moves the meeting point of reach from the block before `begin` to it: reach_j = decay from j to begin - 1.
HWY_INLINE void extend_reach(const LinearLayout& l, const LinearGates& g, int64_t begin) {
  const D d;
  const int64_t before = begin - kGateBlock;
  for (int64_t j = begin - 1; j >= before; --j) {
    if (j == begin - 1)
      fill_row(d, 1.0F, l.dk, g.reach + j * l.ldk);
    else
      multiply_row(d, g.reach + (j + 1) * l.ldk, g.step + (j + 1) * l.ldk, l.dk, g.reach + j * l.ldk);
  }
  if (before == 0) return;
  // Decay over the whole of the block before, its first step included.
  HWY_ALIGN float all[kCols];
  for (int64_t f = 0; f < l.dk; f += kCols) {
    const int64_t n = HWY_MIN(kCols, round_up(l.dk - f, kLanes));
    for (int64_t c = 0; c < n; c += kLanes)
      hn::Store(hn::Mul(hn::Load(d, g.reach + before * l.ldk + f + c),
                        hn::Load(d, g.step + before * l.ldk + f + c)),
                d, all + c);
    for (int64_t j = 0; j < before; ++j)
      for (int64_t c = 0; c < n; c += kLanes) {
        float* at = g.reach + j * l.ldk + f + c;
        hn::Store(hn::Mul(hn::Load(d, at), hn::Load(d, all + c)), d, at);
      }
  }
}

// entry_i = decay from begin - 1 to i, and the block's queries times it.
HWY_INLINE void enter_block(const LinearLayout& l, const LinearGates& g, const float* HWY_RESTRICT a,
                            int64_t begin, int64_t end) {
  const D d;
  for (int64_t i = begin; i < end; ++i) {
    float* entry = g.entry + (i - begin) * l.ldk;
    if (i == begin)
      copy_row(d, g.step + i * l.ldk, l.dk, entry);
    else
      multiply_row(d, entry - l.ldk, g.step + i * l.ldk, l.dk, entry);
    multiply_row(d, a + i * l.ldk, entry, l.dk, g.query + (i - begin) * l.ldk);
  }
}

// As scalar_products(), with a decay for each feature. a, b: [position][ldk].
inline HWY_NOINLINE void feature_products(const LinearLayout& l, const LinearGates& g,
                                          const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                                          int64_t count, bool strict, float* HWY_RESTRICT weights) {
  const D d;
  for (int64_t i = 0; i < kChunkRows; ++i) fill_row(d, 0.0F, kChunkLd, weights + i * kChunkLd);
  for (int64_t begin = 0; begin < count; begin += kGateBlock) {
    const int64_t end = HWY_MIN(begin + kGateBlock, count);
    if (begin > 0) {
      extend_reach(l, g, begin);
      enter_block(l, g, a, begin, end);
      for (int64_t j = 0; j < begin; ++j)
        multiply_row(d, b + j * l.ldk, g.reach + j * l.ldk, l.dk, g.key + j * l.ldk);
      transpose(g.key, l.ldk, begin, l.dk, g.key_t, kChunkLd);
      transpose(g.query, l.ldk, end - begin, l.dk, g.query_t, kChunkLd);
      each_tile(end - begin, begin, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
        Sums<width> sums;
        clear(d, sums);
        accumulate(d, ByDepth{g.query_t + m, kChunkLd}, g.key_t + n, kChunkLd, l.dk, sums);
        // Rows past the block are the next one's, which comes later and writes all of them.
        store(d, sums, weights + (begin + m) * kChunkLd + n, kChunkLd);
      });
      // Columns past the last key before the block are its own, written below.
      for (int64_t i = begin; i < HWY_MIN(end + kMaxCols, kChunkRows); ++i)
        for (int64_t j = begin; j < HWY_MIN(begin + kMaxCols, kChunkLd); j += kLanes)
          hn::Store(hn::Zero(d), d, weights + i * kChunkLd + j);
    }
    for (int64_t j = begin; j < end; ++j) {
      float* key = g.key + j * l.ldk;
      copy_row(d, b + j * l.ldk, l.dk, key);
      for (int64_t i = j; i < end; ++i) {
        Vec sum = hn::Zero(d);
        for (int64_t f = 0; f < l.dk; f += kLanes) {
          Vec x = hn::Load(d, key + f);
          if (i > j) {
            x = hn::Mul(x, hn::Load(d, g.step + i * l.ldk + f));
            hn::Store(x, d, key + f);
          }
          Vec term = hn::Mul(x, hn::Load(d, a + i * l.ldk + f));
          if (f + kLanes > l.dk)
            term = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(l.dk - f)), term);
          sum = hn::Add(sum, term);
        }
        weights[i * kChunkLd + j] = strict && i == j ? 0.0F : sum_of_lanes(d, sum);
      }
    }
  }
}

// weights[i][j] of rows a against the keys of the chunk, with whatever decay there is.
HWY_INLINE void products(const LinearLayout& l, const LinearGates& g, const float* HWY_RESTRICT a,
                         const float* HWY_RESTRICT a_t, const LinearKeys& keys, int64_t count, bool strict,
                         float* HWY_RESTRICT weights) {
  if (l.gates == GateKind::feature) return feature_products(l, g, a, keys.k, count, strict, weights);
  scalar_products(l.gates == GateKind::none ? nullptr : &g, a_t, keys.k_t, l.dk, count, strict, weights);
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
