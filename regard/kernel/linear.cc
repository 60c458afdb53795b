#include "regard/kernel/linear.h"

#include <cmath>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/linear.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/linear_chunk-inl.h"
#include "regard/kernel/linear_layout.h"
#include "regard/kernel/linear_step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// What a row's sum is divided by, and what its out is multiplied by.
struct Division {
  float denominator, factor;
};
HWY_INLINE Division divide(const Linear& p, float sum) {
  if (p.divide == Denominator::none) return {1.0F, p.scale};
  float denominator = p.scale * sum;
  if (p.divide == Denominator::add)
    denominator += p.epsilon;
  else if (denominator < p.epsilon)  // a NaN stays one
    denominator = p.epsilon;
  // A row that sees nothing is 0, also without an epsilon.
  return {denominator, denominator == 0.0F ? 0.0F : p.scale / denominator};
}

// out of one query head from the state before the chunk (s == nullptr: 0) and, in the causal form, from the
// chunk's own keys.
inline HWY_NOINLINE void write_out(const Linear& p, const LinearLayout& l, const LinearKeys& keys,
                                   const float* HWY_RESTRICT s, const float* HWY_RESTRICT z,
                                   LinearQueries& queries) {
  const D d;
  const LinearGates& g = keys.gates;
  const int64_t count = queries.count;
  expect_rows(p.out, queries.batch, queries.head, queries.begin, count);
  const bool gated = p.causal && l.gates == GateKind::scalar;
  // By feature, what reads the state decays before the product; `out` is free until it is written.
  const float* left = queries.q_t;
  if (p.causal) products(l, g, queries.q, queries.q_t, keys, count, false, queries.weights);
  if (l.gates == GateKind::feature && s != nullptr) {
    for (int64_t i = 0; i < count; ++i)
      multiply_row(d, queries.q + i * l.ldk, g.from_start + i * l.ldk, l.dk, g.key + i * l.ldk);
    transpose(g.key, l.ldk, count, l.dk, g.key_t, kChunkLd);
    left = g.key_t;
  }
  const bool finite = !p.causal || all_finite(keys.v, l.ldv, keys.count, l.dv);
  each_tile(count, l.dv, [&](auto width, int64_t m, int64_t n) HWY_ATTR {
    Sums<width> sums;
    clear(d, sums);
    if (s != nullptr) {
      accumulate(d, ByDepth{left + m, kChunkLd}, s + n, l.ldv, l.dk, sums);
      if (gated) scale_rows(d, g.from_start + m, sums);
    }
    if (p.causal && finite)
      accumulate(d, ByRow{queries.weights + m * kChunkLd}, keys.v + n, l.ldv, HWY_MIN(m + kRows, count),
                 sums);
    store(d, sums, queries.out + m * l.ldv + n, l.ldv);
  });
  if (!finite) add_lower_plainly(queries.weights, keys.v, l.ldv, count, l.dv, false, queries.out);
  for (int64_t i = 0; i < count; ++i) queries.sum[i] = 0.0F;
  if (p.divide != Denominator::none) {
    if (s != nullptr)
      for (int64_t i = 0; i < count; i += kLanes) {
        Vec sum = hn::Zero(d);
        for (int64_t f = 0; f < l.dk; ++f)
          sum = hn::MulAdd(hn::Load(d, left + f * kChunkLd + i), hn::Set(d, z[f]), sum);
        if (gated) sum = hn::Mul(sum, hn::Load(d, g.from_start + i));
        hn::Store(sum, d, queries.sum + i);
      }
    if (p.causal)
      for (int64_t i = 0; i < count; ++i) {
        const float* row = queries.weights + i * kChunkLd;
        Vec sum = hn::Zero(d);
        int64_t j = 0;
        for (; j + kLanes <= i + 1; j += kLanes) sum = hn::Add(sum, hn::Load(d, row + j));
        float rest = 0.0F;
        for (; j <= i; ++j) rest += row[j];
        queries.sum[i] += sum_of_lanes(d, sum) + rest;
      }
  }
  for (int64_t i = 0; i < count; ++i) {
    const Division by = divide(p, queries.sum[i]);
    if (p.denominator) p.denominator(queries.batch, queries.head, queries.begin + i, 0) = by.denominator;
    queries.sum[i] = by.factor;
  }
  if (p.out)
    store_rows(p.out, queries.batch, queries.head, queries.begin, count, queries.out, l.ldv, queries.sum);
}

// All query heads of the keys' unit.
HWY_INLINE void write_heads(const Linear& p, const LinearLayout& l, const LinearKeys& keys, int64_t index,
                            const LinearState* state, LinearQueries& queries) {
  for (int64_t h = 0; h < l.group; ++h) {
    load_queries(p, l, keys.batch, keys.head * l.group + h, index, queries);
    write_out(p, l, keys, state == nullptr ? nullptr : state->s, state == nullptr ? nullptr : state->z,
              queries);
  }
}

HWY_INLINE void write_state(const Linear& p, const LinearLayout& l, int64_t unit, bool nonzero,
                            const LinearState& state) {
  const int64_t batch = unit / l.kv_heads;
  const int64_t head = unit % l.kv_heads;
  for (int64_t f = 0; f < l.dk; ++f) {
    if (p.state_out) {
      if (!nonzero) fill_row(D(), 0.0F, l.dv, state.s + f * l.ldv);
      float* to = p.state_out.at(batch, head, f);
      if (p.state_out.stride[3] == 1)
        std::copy_n(state.s + f * l.ldv, l.dv, to);
      else
        for (int64_t n = 0; n < l.dv; ++n) to[n * p.state_out.stride[3]] = state.s[f * l.ldv + n];
    }
    if (p.norm_out) p.norm_out(batch, head, f, 0) = nonzero ? state.z[f] : 0.0F;
  }
}

// One unit from its first key to its last.
HWY_INLINE void run_unit(const Linear& p, const LinearLayout& l, int64_t unit, LinearForwardScratch& s) {
  const bool wants_state = p.state_out || p.norm_out;
  bool nonzero = read_state(p, l, unit, s.state);
  s.keys.batch = unit / l.kv_heads;
  s.keys.head = unit % l.kv_heads;
  for (int64_t c = 0; c < l.key_chunks; ++c) {
    load_keys(p, l, unit, c, s.keys);
    if (p.causal || l.delta) turn_keys(l, s.keys);
    if (l.delta) solve_delta(l, nonzero ? s.state.s : nullptr, s.keys);
    if (p.causal) write_heads(p, l, s.keys, c, nonzero ? &s.state : nullptr, s.queries);
    if (p.causal && c + 1 == l.key_chunks && !wants_state) break;
    sum_keys(l, s.keys, has_norm(p), s.added);
    advance(l, s.added, s.keys.gates.total, nonzero, has_norm(p), s.state);
    nonzero = true;
  }
  if (!p.causal)
    for (int64_t c = 0; c < l.query_chunks; ++c)
      write_heads(p, l, s.keys, c, nonzero ? &s.state : nullptr, s.queries);
  write_state(p, l, unit, nonzero, s.state);
}

// One unit, position by position.
HWY_INLINE void run_steps(const Linear& p, const LinearLayout& l, int64_t unit, LinearForwardScratch& s) {
  if (!read_state(p, l, unit, s.state)) {
    for (int64_t f = 0; f < l.dk; ++f) fill_row(D(), 0.0F, l.dv, s.state.s + f * l.ldv);
    fill_row(D(), 0.0F, l.dk, s.state.z);
  }
  for (int64_t t = 0; t < p.k.size[2]; ++t) {
    load_keys(p, l, unit, t, s.keys);
    step_state(l, s.keys, has_norm(p), s.state);
    for (int64_t h = 0; h < l.group; ++h) {
      const int64_t head = s.keys.head * l.group + h;
      load_rows(p.q, s.keys.batch, head, t, 1, s.queries.q, l.ldk, s.queries.ahead);
      map_features(p.feature, 1, l.dk, s.queries.q, l.ldk);
      weigh_rows(l, s.state.s, s.queries.q, s.queries.out);
      const Division by = divide(p, has_norm(p) ? dot(D(), s.queries.q, s.state.z, l.dk) : 0.0F);
      if (p.denominator) p.denominator(s.keys.batch, head, t, 0) = by.denominator;
      if (p.out) store_rows(p.out, s.keys.batch, head, t, 1, s.queries.out, l.ldv, &by.factor);
    }
  }
  write_state(p, l, unit, true, s.state);
}

// Chunks side by side: what each adds to the state, then the states before them in order, then their rows.
// The operations are those of run_unit(), so the bits are too.
void run_chunks(const Linear& p, const LinearLayout& l, float* HWY_RESTRICT memory, Parallel& parallel,
                const auto& scratch_of) {
  const int64_t floats = scratch_floats<LinearState>(l);
  const int64_t states = l.key_chunks + 1;  // the last one: after all keys
  const auto state_at = [&](int64_t unit, int64_t chunk) HWY_ATTR {
    return LinearState::at(l, memory + (unit * states + chunk) * floats);
  };
  parallel.run(l.units * l.key_chunks, [&](int64_t task, int worker) HWY_ATTR {
    LinearForwardScratch s = scratch_of(worker);
    load_keys(p, l, task / l.key_chunks, task % l.key_chunks, s.keys);
    const LinearState to = state_at(task / l.key_chunks, task % l.key_chunks);
    sum_keys(l, s.keys, has_norm(p), to);
    copy_row(D(), s.keys.gates.total, l.dk, to.total);
  });
  const bool given = p.state || p.norm;
  parallel.run(l.units, [&](int64_t unit, int worker) HWY_ATTR {
    LinearForwardScratch s = scratch_of(worker);
    bool nonzero = read_state(p, l, unit, s.state);
    for (int64_t c = 0; c < l.key_chunks; ++c) {
      take_place(l, state_at(unit, c), s.added, nonzero, s.state);
      advance(l, s.added, state_at(unit, c).total, nonzero, has_norm(p), s.state);
      nonzero = true;
    }
    copy_state(l, s.state, state_at(unit, l.key_chunks));
    write_state(p, l, unit, nonzero, s.state);
  });
  const int64_t chunks = p.causal ? l.key_chunks : l.query_chunks;
  parallel.run(l.units * chunks, [&](int64_t task, int worker) HWY_ATTR {
    LinearForwardScratch s = scratch_of(worker);
    const int64_t unit = task / chunks;
    const int64_t c = task % chunks;
    s.keys.batch = unit / l.kv_heads;
    s.keys.head = unit % l.kv_heads;
    if (p.causal) {
      load_keys(p, l, unit, c, s.keys);
      turn_keys(l, s.keys);
    }
    const LinearState state = state_at(unit, p.causal ? c : l.key_chunks);
    const bool nonzero = given || (p.causal ? c > 0 : l.key_chunks > 0);
    write_heads(p, l, s.keys, c, nonzero ? &state : nullptr, s.queries);
  });
}

void LinearForward(const Linear& p, const LinearTiling& tiling, float* memory, Parallel& parallel) {
  const LinearLayout l(p, tiling);
  const int64_t floats = scratch_floats<LinearForwardScratch>(l);
  const auto scratch_of = [&](int worker) HWY_ATTR {
    FloatCarver carve(memory + worker * floats);
    return LinearForwardScratch(l, carve);
  };
  if (l.chunk > 1 && l.over_chunks(parallel.workers()))
    return run_chunks(p, l, memory + parallel.workers() * floats, parallel, scratch_of);
  parallel.run(l.units, [&](int64_t unit, int worker) HWY_ATTR {
    LinearForwardScratch s = scratch_of(worker);
    if (l.chunk == 1)
      run_steps(p, l, unit, s);
    else
      run_unit(p, l, unit, s);
  });
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "regard/kernel/dispatch.h"

namespace regard::kernel {

HWY_EXPORT(LinearForward);

LinearTiling choose_linear_tiling(const Linear& problem) {
  // A few positions are cheaper as passes over the state than as a chunk's products.
  return {problem.causal && problem.k.size[2] <= 4 ? 1 : kMaxLinearChunk};
}

size_t linear_workspace(const Linear& problem, const LinearTiling& tiling, int workers) {
  const LinearLayout l(problem, tiling);
  int64_t floats = workers * scratch_floats<LinearForwardScratch>(l);
  if (l.chunk > 1 && l.over_chunks(workers))
    floats += l.units * (l.key_chunks + 1) * scratch_floats<LinearState>(l);
  return static_cast<size_t>(floats) * 4;
}

void linear_forward(const Linear& problem, const LinearTiling& tiling, std::span<std::byte> workspace,
                    Parallel& parallel) {
  REGARD_DISPATCH(LinearForward)(problem, tiling, reinterpret_cast<float*>(workspace.data()), parallel);
}

}  // namespace regard::kernel

#endif  // HWY_ONCE
