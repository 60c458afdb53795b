#include <algorithm>
#include <cmath>
#include <type_traits>

#include "regard/kernel/linear.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/linear_backward.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/linear_chunk-inl.h"
#include "regard/kernel/linear_gradient-inl.h"
#include "regard/kernel/linear_layout.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

using Scratch = LinearBackwardScratch;

// What a chunk reads of a state or of its gradient, turned: row dv is z.
HWY_INLINE void turn_state(const LinearLayout& l, const LinearState& state, bool with_norm, float* to) {
  transpose(state.s, l.ldv, l.dk, l.dv, to, l.ldk);
  if (with_norm) copy_row(D(), state.z, l.dk, to + l.dv * l.ldk);
}

HWY_INLINE void turn_values(const LinearLayout& l, const LinearKeys& keys, bool with_norm, float* v_t) {
  transpose(keys.v, l.ldv, keys.count, l.dv, v_t, kChunkLd);
  if (with_norm) fill_row(D(), 1.0F, keys.count, v_t + l.dv * kChunkLd);
}

// The queries of a head and the gradient of their sums. grad, grad_t: times scale / denominator; row dv of
// grad_t: the gradient of q z.
HWY_INLINE void load_grad_rows(const LinearBackward& problem, const LinearLayout& l, int64_t batch,
                               int64_t head, int64_t index, Scratch& s) {
  const D d;
  const Linear& p = problem.forward;
  LinearQueries& queries = s.queries;
  load_queries(p, l, batch, head, index, queries);
  const int64_t begin = queries.begin;
  const int64_t count = queries.count;
  if (problem.grad_out)
    load_rows(problem.grad_out, batch, head, begin, count, s.grad, l.ldv, queries.ahead);
  else
    clear_rows(0, count, l.dv, s.grad, l.ldv);
  if (has_norm(p)) load_rows(p.out, batch, head, begin, count, queries.out, l.ldv, queries.ahead);
  for (int64_t i = 0; i < count; ++i) {
    float* row = s.grad + i * l.ldv;
    float factor = p.scale;
    s.grad_sum[i] = 0.0F;
    if (has_norm(p)) {
      const float denominator = p.denominator(batch, head, begin + i, 0);
      if (denominator == 0.0F) {
        fill_row(d, 0.0F, l.dv, row);
        continue;
      }
      factor = p.scale / denominator;
      if (p.divide == Denominator::add || !(denominator <= p.epsilon))
        s.grad_sum[i] = -factor * dot(d, row, queries.out + i * l.ldv, l.dv);
    }
    const Vec x = hn::Set(d, factor);
    for (int64_t n = 0; n < l.dv; n += kLanes) hn::Store(hn::Mul(hn::Load(d, row + n), x), d, row + n);
  }
  transpose(s.grad, l.ldv, count, l.dv, s.grad_t, kChunkLd);
  if (has_norm(p)) copy_row(d, s.grad_sum, count, s.grad_t + l.dv * kChunkLd);
}

// Of all heads of a unit: what a chunk of queries adds to the gradient of the state before it. to: set by the
// first head.
HWY_INLINE void sum_all_queries(const LinearBackward& problem, const LinearLayout& l, const LinearKeys& keys,
                                int64_t index, Scratch& s, const LinearState& to) {
  for (int64_t h = 0; h < l.group; ++h) {
    load_grad_rows(problem, l, keys.batch, keys.head * l.group + h, index, s);
    sum_queries(l, keys.gates, problem.forward.causal, s.queries.q, s.queries.count,
                has_norm(problem.forward), h == 0, s, to);
  }
}

HWY_INLINE void store_gradient(const AnyView& to, int64_t batch, int64_t head, int64_t begin, int64_t live,
                               int64_t count, int64_t features, float* from, int64_t ld) {
  if (!to) return;
  clear_rows(live, count, features, from, ld);
  store_rows(to, batch, head, begin, count, from, ld, nullptr);
}

// A causal chunk; by the delta rule, s.keys.error and overlap are known. before: the state before it, after:
// behind it; grad: the gradient of the state behind it (nullptr: 0). to: what the chunk adds to the gradient
// of the state before it; nullptr: not wanted.
inline HWY_NOINLINE void causal_chunk(const LinearBackward& problem, const LinearLayout& l, int64_t unit,
                                      int64_t index, const LinearState* before, const LinearState& after,
                                      const LinearState* grad, Scratch& s, const LinearState* to) {
  const D d;
  const Linear& p = problem.forward;
  LinearKeys& keys = s.keys;
  const bool norm = has_norm(p);
  const int64_t depth = l.dv + (norm ? 1 : 0);
  load_keys(p, l, unit, index, keys);
  expect_rows(problem.grad_k, keys.batch, keys.head, keys.begin, keys.count);
  expect_rows(problem.grad_v, keys.batch, keys.head, keys.begin, keys.count);
  turn_keys(l, keys);
  if (l.delta) write_errors(l, keys);
  turn_values(l, keys, norm, s.v_t);
  if (before != nullptr) turn_state(l, *before, norm, s.state_t);
  if (grad != nullptr) turn_state(l, *grad, norm, s.grad_state_t);
  const float* state_t = before == nullptr ? nullptr : s.state_t;
  begin_gate_gradient(l, keys.count, s);
  start_keys(l, keys, grad == nullptr ? nullptr : s.grad_state_t, grad, depth, s);
  const bool of_decay = static_cast<bool>(problem.grad_log_decay);
  if (of_decay && l.gates == GateKind::scalar) add_rows_times(l, keys.count, keys.k, s.grad_k, s.key_gates);
  for (int64_t h = 0; h < l.group; ++h) {
    LinearQueries& queries = s.queries;
    const int64_t head = keys.head * l.group + h;
    load_grad_rows(problem, l, keys.batch, head, index, s);
    expect_rows(problem.grad_q, keys.batch, head, queries.begin, queries.count);
    products(l, keys.gates, queries.q, queries.q_t, keys, keys.count, false, queries.weights);
    chunk_gradient(l, keys, queries.q, state_t, depth, false, of_decay ? queries.weights : nullptr, s);
    add_weighted_rows(l, queries.weights, s.grad, keys.count, s.grad_v);
    if (to != nullptr) sum_queries(l, keys.gates, true, queries.q, queries.count, norm, h == 0, s, *to);
    if (of_decay) add_feature_gates(l, keys.count, queries.q, s.grad_q, 1.0F, s);
    unmap_gradient(p.feature, queries.count, l.dk, queries.q, s.grad_q, l.ldk);
    store_gradient(problem.grad_q, keys.batch, head, queries.begin, queries.count, queries.count, l.dk,
                   s.grad_q, l.ldk);
  }
  if (l.delta) {
    solve_delta_backward(l, keys, s);  // grad_v becomes that of v; grad: its negative
    if (problem.grad_beta)
      for (int64_t j = 0; j < keys.count; ++j)
        problem.grad_beta(keys.batch, keys.head, keys.begin + j, 0) = j < keys.live ? s.grad_beta[j] : 0.0F;
    // The keys as queries of the state: they ask it what to correct.
    chunk_gradient(l, keys, keys.k, state_t, depth, true, of_decay ? keys.overlap : nullptr, s);
    if (to != nullptr) sum_queries(l, keys.gates, true, keys.k, keys.count, false, false, s, *to);
    if (of_decay) add_feature_gates(l, keys.count, keys.k, s.grad_q, 1.0F, s);
  }
  if (of_decay) {
    add_feature_gates(l, keys.count, keys.k, s.grad_k, -1.0F, s);
    store_gate_gradient(problem.grad_log_decay, l, keys, before, grad, after, norm, s);
  }
  if (l.delta)
    for (int64_t j = 0; j < keys.count; ++j)
      for (int64_t f = 0; f < l.dk; f += kLanes) {
        float* at = s.grad_k + j * l.ldk + f;
        hn::Store(hn::Add(hn::Load(d, at), hn::Load(d, s.grad_q + j * l.ldk + f)), d, at);
      }
  unmap_gradient(p.feature, keys.count, l.dk, keys.k, s.grad_k, l.ldk);
  store_gradient(problem.grad_k, keys.batch, keys.head, keys.begin, keys.live, keys.count, l.dk, s.grad_k,
                 l.ldk);
  store_gradient(problem.grad_v, keys.batch, keys.head, keys.begin, keys.live, keys.count, l.dv, s.grad_v,
                 l.ldv);
}

// A chunk of queries of all heads that read `state` (nullptr: 0).
HWY_INLINE void query_chunk(const LinearBackward& problem, const LinearLayout& l, int64_t unit, int64_t index,
                            const LinearState* state, Scratch& s) {
  const Linear& p = problem.forward;
  const bool norm = has_norm(p);
  if (!problem.grad_q) return;
  if (state != nullptr) turn_state(l, *state, norm, s.state_t);
  for (int64_t h = 0; h < l.group; ++h) {
    const int64_t head = unit % l.kv_heads * l.group + h;
    load_grad_rows(problem, l, unit / l.kv_heads, head, index, s);
    read_gradient(l, s.keys.gates, state == nullptr ? nullptr : s.state_t, l.dv + (norm ? 1 : 0),
                  s.queries.count, s);
    unmap_gradient(p.feature, s.queries.count, l.dk, s.queries.q, s.grad_q, l.ldk);
    store_gradient(problem.grad_q, unit / l.kv_heads, head, s.queries.begin, s.queries.count, s.queries.count,
                   l.dk, s.grad_q, l.ldk);
  }
}

// A chunk of keys that no query of the same chunk reads.
HWY_INLINE void key_chunk(const LinearBackward& problem, const LinearLayout& l, int64_t unit, int64_t index,
                          const LinearState* grad, Scratch& s) {
  const Linear& p = problem.forward;
  const bool norm = has_norm(p);
  load_keys(p, l, unit, index, s.keys);
  turn_keys(l, s.keys);
  turn_values(l, s.keys, norm, s.v_t);
  if (grad != nullptr) turn_state(l, *grad, norm, s.grad_state_t);
  start_keys(l, s.keys, grad == nullptr ? nullptr : s.grad_state_t, grad, l.dv + (norm ? 1 : 0), s);
  unmap_gradient(p.feature, s.keys.count, l.dk, s.keys.k, s.grad_k, l.ldk);
  store_gradient(problem.grad_k, s.keys.batch, s.keys.head, s.keys.begin, s.keys.live, s.keys.count, l.dk,
                 s.grad_k, l.ldk);
  store_gradient(problem.grad_v, s.keys.batch, s.keys.head, s.keys.begin, s.keys.live, s.keys.count, l.dv,
                 s.grad_v, l.ldv);
}

// The gradient that arrives at the last state; whether there is one.
HWY_INLINE bool read_grad_state(const LinearBackward& problem, const LinearLayout& l, int64_t unit,
                                const LinearState& to) {
  Linear arriving = problem.forward;
  arriving.state = problem.grad_state_out;
  arriving.norm = problem.grad_norm_out;
  return read_state(arriving, l, unit, to);
}

HWY_INLINE void write_grad_state(const LinearBackward& problem, const LinearLayout& l, int64_t unit,
                                 bool nonzero, const LinearState& grad) {
  for (int64_t f = 0; f < l.dk; ++f) {
    const int64_t batch = unit / l.kv_heads;
    const int64_t head = unit % l.kv_heads;
    if (problem.grad_state)
      for (int64_t n = 0; n < l.dv; ++n)
        problem.grad_state(batch, head, f, n) = nonzero ? grad.s[f * l.ldv + n] : 0.0F;
    if (problem.grad_norm) problem.grad_norm(batch, head, f, 0) = nonzero ? grad.z[f] : 0.0F;
  }
}

HWY_INLINE void set_unit(const LinearLayout& l, int64_t unit, LinearKeys& keys) {
  keys.unit = unit;
  keys.batch = unit / l.kv_heads;
  keys.head = unit % l.kv_heads;
}

// One unit: its states from first to last, then gradients from last to first. states: one a chunk and one
// more.
template <class StateAt>
HWY_INLINE void run_unit(const LinearBackward& problem, const LinearLayout& l, int64_t unit,
                         const StateAt& state_at, Scratch& s) {
  const Linear& p = problem.forward;
  const bool norm = has_norm(p);
  const bool given = read_state(p, l, unit, s.state);
  bool nonzero = given;
  set_unit(l, unit, s.keys);
  for (int64_t c = 0; c < l.key_chunks; ++c) {
    if (p.causal) copy_state(l, s.state, state_at(c));
    load_keys(p, l, unit, c, s.keys);
    if (l.delta) {
      turn_keys(l, s.keys);
      s.keys.error = state_at(c).error;
      s.keys.overlap = state_at(c).overlap;
      solve_delta(l, nonzero ? s.state.s : nullptr, s.keys);
    }
    sum_keys(l, s.keys, norm, s.added);
    advance(l, s.added, s.keys.gates.total, nonzero, norm, s.state);
    nonzero = true;
  }
  copy_state(l, s.state, state_at(p.causal ? l.key_chunks : 0));
  bool arrives = read_grad_state(problem, l, unit, s.grad_state);
  const bool wants_first = problem.grad_state || problem.grad_norm;
  if (p.causal) {
    s.keys.ahead = s.queries.ahead = -l.chunk;
    for (int64_t c = l.key_chunks - 1; c >= 0; --c) {
      const bool earlier = c > 0 || given;
      const bool goes_on = c > 0 || wants_first;
      const LinearState before = state_at(c);
      s.keys.error = before.error;
      s.keys.overlap = before.overlap;
      causal_chunk(problem, l, unit, c, earlier ? &before : nullptr, state_at(c + 1),
                   arrives ? &s.grad_state : nullptr, s, goes_on ? &s.added : nullptr);
      if (goes_on) advance(l, s.added, s.keys.gates.total, arrives, norm, s.grad_state);
      arrives = true;
    }
  } else {
    const LinearState last = state_at(0);
    fill_row(D(), 1.0F, l.dk, s.keys.gates.total);
    for (int64_t c = 0; c < l.query_chunks; ++c) {
      sum_all_queries(problem, l, s.keys, c, s, s.added);
      advance(l, s.added, s.keys.gates.total, arrives, norm, s.grad_state);
      arrives = true;
      query_chunk(problem, l, unit, c, nonzero ? &last : nullptr, s);
    }
    for (int64_t c = 0; c < l.key_chunks; ++c)
      key_chunk(problem, l, unit, c, arrives ? &s.grad_state : nullptr, s);
  }
  write_grad_state(problem, l, unit, arrives, s.grad_state);
}

// Chunks side by side, with the operations of run_unit(): what each chunk adds to the state and to its
// gradient; both in order; then the chunks' gradients.
template <class StateAt, class GradAt, class ScratchOf>
void run_chunks(const LinearBackward& problem, const LinearLayout& l, const StateAt& state_at,
                const GradAt& grad_at, const ScratchOf& scratch_of, Parallel& parallel) {
  const Linear& p = problem.forward;
  const bool norm = has_norm(p);
  parallel.run(l.units * l.key_chunks, [&](int64_t task, int worker) HWY_ATTR {
    Scratch s = scratch_of(worker);
    const LinearState to = state_at(task / l.key_chunks, task % l.key_chunks);
    load_keys(p, l, task / l.key_chunks, task % l.key_chunks, s.keys);
    sum_keys(l, s.keys, norm, to);
    copy_row(D(), s.keys.gates.total, l.dk, to.total);
    if (p.causal)
      sum_all_queries(problem, l, s.keys, task % l.key_chunks, s,
                      grad_at(task / l.key_chunks, task % l.key_chunks));
  });
  if (!p.causal)
    parallel.run(l.units * l.query_chunks, [&](int64_t task, int worker) HWY_ATTR {
      Scratch s = scratch_of(worker);
      set_unit(l, task / l.query_chunks, s.keys);
      sum_all_queries(problem, l, s.keys, task % l.query_chunks, s,
                      grad_at(task / l.query_chunks, task % l.query_chunks));
    });
  const bool given = p.state || p.norm;
  const bool arrives = problem.grad_state_out || problem.grad_norm_out;
  parallel.run(l.units, [&](int64_t unit, int worker) HWY_ATTR {
    Scratch s = scratch_of(worker);
    bool nonzero = read_state(p, l, unit, s.state);
    for (int64_t c = 0; c < l.key_chunks; ++c) {
      take_place(l, state_at(unit, c), s.added, nonzero, s.state);
      advance(l, s.added, state_at(unit, c).total, nonzero, norm, s.state);
      nonzero = true;
    }
    copy_state(l, s.state, state_at(unit, l.key_chunks));
    nonzero = read_grad_state(problem, l, unit, s.grad_state);
    fill_row(D(), 1.0F, l.dk, s.keys.gates.total);
    const int64_t chunks = p.causal ? l.key_chunks : l.query_chunks;
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t c = p.causal ? chunks - 1 - i : i;
      take_place(l, grad_at(unit, c), s.added, nonzero, s.grad_state);
      advance(l, s.added, p.causal ? state_at(unit, c).total : s.keys.gates.total, nonzero, norm,
              s.grad_state);
      nonzero = true;
    }
    if (!p.causal) copy_state(l, s.grad_state, grad_at(unit, chunks));
    write_grad_state(problem, l, unit, nonzero, s.grad_state);
  });
  if (!p.causal)
    parallel.run(l.units * l.query_chunks, [&](int64_t task, int worker) HWY_ATTR {
      Scratch s = scratch_of(worker);
      const LinearState last = state_at(task / l.query_chunks, l.key_chunks);
      query_chunk(problem, l, task / l.query_chunks, task % l.query_chunks,
                  given || l.key_chunks > 0 ? &last : nullptr, s);
    });
  parallel.run(l.units * l.key_chunks, [&](int64_t task, int worker) HWY_ATTR {
    Scratch s = scratch_of(worker);
    const int64_t unit = task / l.key_chunks;
    const int64_t c = task % l.key_chunks;
    if (!p.causal) {
      const LinearState grad = grad_at(unit, l.query_chunks);
      return key_chunk(problem, l, unit, c, arrives || l.query_chunks > 0 ? &grad : nullptr, s);
    }
    const LinearState before = state_at(unit, c);
    const LinearState grad = grad_at(unit, c);
    causal_chunk(problem, l, unit, c, given || c > 0 ? &before : nullptr, state_at(unit, c + 1),
                 arrives || c + 1 < l.key_chunks ? &grad : nullptr, s, nullptr);
  });
}

void LinearGradient(const LinearBackward& problem, const LinearTiling& tiling, float* memory,
                    Parallel& parallel) {
  const LinearLayout l(problem.forward, tiling);
  const int64_t floats = scratch_floats<Scratch>(l);
  const int64_t state_floats = scratch_floats<LinearState>(l);
  const int64_t states = linear_states(problem.forward, l);
  float* shared = memory + parallel.workers() * floats;
  const auto scratch_of = [&](int worker) HWY_ATTR {
    FloatCarver carve(memory + worker * floats);
    return Scratch(l, carve);
  };
  if (l.over_chunks(parallel.workers())) {
    const auto state_at = [&](int64_t unit, int64_t chunk) HWY_ATTR {
      return LinearState::at(l, shared + (2 * unit * states + chunk) * state_floats);
    };
    const auto grad_at = [&](int64_t unit, int64_t chunk) HWY_ATTR {
      return LinearState::at(l, shared + ((2 * unit + 1) * states + chunk) * state_floats);
    };
    return run_chunks(problem, l, state_at, grad_at, scratch_of, parallel);
  }
  parallel.run(l.units, [&](int64_t unit, int worker) HWY_ATTR {
    Scratch s = scratch_of(worker);
    const auto state_at = [&](int64_t chunk) HWY_ATTR {
      return LinearState::at(
          l, shared + (worker * (problem.forward.causal ? states : 1) + chunk) * state_floats);
    };
    run_unit(problem, l, unit, state_at, s);
  });
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "regard/kernel/dispatch.h"

namespace regard::kernel {

HWY_EXPORT(LinearGradient);

namespace {

// A chunk of one position would only repeat the loads of a state.
LinearTiling backward_tiling(const LinearTiling& tiling) {
  return {tiling.chunk == 1 ? kMaxLinearChunk : tiling.chunk};
}

}  // namespace

size_t linear_backward_workspace(const LinearBackward& problem, const LinearTiling& tiling, int workers) {
  const LinearLayout l(problem.forward, backward_tiling(tiling));
  const int64_t states = linear_states(problem.forward, l);
  const int64_t stored = l.over_chunks(workers)   ? 2 * l.units * states
                         : problem.forward.causal ? workers * states
                                                  : workers;
  return static_cast<size_t>(workers * scratch_floats<LinearBackwardScratch>(l) +
                             stored * scratch_floats<LinearState>(l)) *
         4;
}

void linear_backward(const LinearBackward& problem, const LinearTiling& tiling,
                     std::span<std::byte> workspace, Parallel& parallel) {
  REGARD_DISPATCH(LinearGradient)
  (problem, backward_tiling(tiling), reinterpret_cast<float*>(workspace.data()), parallel);
}

}  // namespace regard::kernel

#endif  // HWY_ONCE
