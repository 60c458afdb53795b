#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "regard/kernel/linear.h"
#include "regard/kernel/prefill_layout.h"

// How the linear-attention kernels lay out their scratch; sizes hold for every target. Three shapes of
// matrix: [position][feature] with ldk or ldv floats a row, [feature][position] and [position][position] with
// kChunkLd.
namespace regard::kernel {

// An odd number of cache lines, so that walking down a column meets all sets of the L1 cache.
constexpr int64_t kChunkLd = kMaxLinearChunk + 16;
// Rows of a matrix whose rows are positions: whole register tiles of every target.
constexpr int64_t kChunkRows = 72;

enum class GateKind : uint8_t { none, scalar, feature };

struct LinearLayout {
  int64_t units, group;  // key/value heads of all batch entries; query heads of each
  int64_t kv_heads;
  int64_t chunk;  // positions
  int64_t query_chunks, key_chunks;
  int64_t dk, dv;
  int64_t ldk, ldv;          // floats from row to row where columns are features
  int64_t dk_rows, dv_rows;  // rows where rows are features: whole tiles, and one more for the denominator
  GateKind gates;
  bool delta;

  LinearLayout(const Linear& p, const LinearTiling& tiling) {
    kv_heads = p.k.size[1];
    units = p.k.size[0] * kv_heads;
    group = kv_heads > 0 ? p.q.size[1] / kv_heads : 0;
    chunk = tiling.chunk;
    query_chunks = (p.q.size[2] + chunk - 1) / chunk;
    key_chunks = (p.k.size[2] + chunk - 1) / chunk;
    dk = p.k.size[3];
    dv = p.v.size[3];
    ldk = round_up(dk, kMaxCols) + 16;
    ldv = round_up(dv, kMaxCols) + 16;
    dk_rows = std::max(round_up(dk + 1, 12), round_up(dk, kMaxLanes));
    dv_rows = std::max(round_up(dv + 1, 12), round_up(dv, kMaxLanes));
    gates = !p.log_decay ? GateKind::none : p.log_decay.size[3] > 1 ? GateKind::feature : GateKind::scalar;
    delta = static_cast<bool>(p.beta);
  }

  // Whether chunks of one head run side by side, once their states are known. The delta rule's state after a
  // chunk is a matrix product of the one before it: there, heads alone are shared out.
  bool over_chunks(int workers) const {
    return !delta && workers > 1 && units < 2 * int64_t{workers} && std::max(query_chunks, key_chunks) > 1;
  }
};

// Hands out consecutive arrays of floats; without memory it only counts.
class FloatCarver {
 public:
  explicit FloatCarver(float* at) : at_(at) {}
  float* take(int64_t count) {
    float* piece = at_ == nullptr ? nullptr : at_ + used_;
    used_ += round_up(count, 16);
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  float* at_;
  int64_t used_ = 0;
};

// A head's state at one place.
struct LinearState {
  float* s;      // [dk][ldv]
  float* z;      // [dk]
  float* total;  // [dk] what the chunk that stands here multiplies them by
  // delta: what the backward needs of that chunk and solve_delta() has found, as in LinearKeys.
  float* error;
  float* overlap;

  LinearState(const LinearLayout& l, FloatCarver& carve)
      : s(carve.take(l.dk_rows * l.ldv)),
        z(carve.take(l.ldk)),
        total(carve.take(l.ldk)),
        error(carve.take(l.delta ? kChunkRows * l.ldv : 0)),
        overlap(carve.take(l.delta ? kChunkRows * kChunkLd : 0)) {}
  static LinearState at(const LinearLayout& l, float* memory) {
    FloatCarver carve(memory);
    return {l, carve};
  }
};

// Decays inside a chunk. c_i: the sum of log decays of the chunk's positions up to i.
struct LinearGates {
  float* high;  // scalar: [position] c_i / ln 2 in two parts: differences keep their digits
  float* low;
  float* from_start;  // exp(c_i): [position], or feature: [position][ldk]
  float* to_end;      // exp(c_last - c_j), likewise
  float* total;       // [dk] exp(c_last), for all kinds
  float* step;        // feature: [position][ldk] exp(log decay) of each position
  // feature: scratch of one block of 16 queries against the keys before it.
  float* reach;    // [position][ldk] decay from a key to the block
  float* key;      // [position][ldk] keys times reach
  float* key_t;    // [feature][position]
  float* entry;    // [16][ldk] decay from the block's beginning to a query
  float* query;    // [16][ldk] queries times entry
  float* query_t;  // [feature][position]

  LinearGates(const LinearLayout& l, FloatCarver& carve) {
    const bool scalar = l.gates == GateKind::scalar;
    const int64_t features = l.gates == GateKind::feature ? kChunkRows * l.ldk : 0;
    const int64_t turned = l.gates == GateKind::feature ? l.dk_rows * kChunkLd : 0;
    high = carve.take(scalar ? kChunkLd : 0);
    low = carve.take(scalar ? kChunkLd : 0);
    from_start = carve.take(scalar ? kChunkLd : features);
    to_end = carve.take(scalar ? kChunkLd : features);
    total = carve.take(l.ldk);
    step = carve.take(features);
    reach = carve.take(features);
    key = carve.take(features);
    key_t = carve.take(turned);
    entry = carve.take(features);
    query = carve.take(features);
    query_t = carve.take(turned);
  }
};

// What a worker keeps of the keys of a chunk.
struct LinearKeys {
  int64_t unit = 0, batch = 0, head = 0;
  int64_t begin = 0, count = 0;  // positions
  int64_t live = 0;              // of them not padding
  int64_t ahead;                 // positions to the chunk that comes next
  LinearGates gates;
  float* k;        // [position][ldk] features of k, 0 where padding
  float* k_t;      // [feature][position]
  float* k_end;    // [position][ldk] k times to_end; k itself without decay
  float* v;        // [position][ldv] what is written: v, or by the delta rule w
  float* beta;     // delta: [position]
  float* error;    // delta: [position][ldv] w / beta
  float* overlap;  // delta: [position][position] decayed products of keys, strictly lower

  LinearKeys(const LinearLayout& l, FloatCarver& carve)
      : ahead(l.chunk),
        gates(l, carve),
        k(carve.take(kChunkRows * l.ldk)),
        k_t(carve.take(l.dk_rows * kChunkLd)),
        k_end(l.gates == GateKind::none ? k : carve.take(kChunkRows * l.ldk)),
        v(carve.take(kChunkRows * l.ldv)),
        beta(carve.take(l.delta ? kChunkLd : 0)),
        error(carve.take(l.delta ? kChunkRows * l.ldv : 0)),
        overlap(carve.take(l.delta ? kChunkRows * kChunkLd : 0)) {}
};

// Of the queries of a chunk and one query head.
struct LinearQueries {
  int64_t batch = 0, head = 0;
  int64_t begin = 0, count = 0;
  int64_t ahead;   // positions to the chunk that comes next
  float* q;        // [position][ldk] features of q
  float* q_t;      // [feature][position]
  float* weights;  // [position][position] decayed products of queries and keys, 0 above the diagonal
  float* out;      // [position][ldv]
  float* sum;      // [position] q z

  LinearQueries(const LinearLayout& l, FloatCarver& carve)
      : ahead(l.chunk),
        q(carve.take(kChunkRows * l.ldk)),
        q_t(carve.take(l.dk_rows * kChunkLd)),
        weights(carve.take(kChunkRows * kChunkLd)),
        out(carve.take(kChunkRows * l.ldv)),
        sum(carve.take(kChunkLd)) {}
};

// Everything of a worker of the forward.
struct LinearForwardScratch {
  LinearKeys keys;
  LinearQueries queries;
  LinearState state, added;

  LinearForwardScratch(const LinearLayout& l, FloatCarver& carve)
      : keys(l, carve), queries(l, carve), state(l, carve), added(l, carve) {}
};

// Everything of a worker of the backward.
struct LinearBackwardScratch {
  LinearKeys keys;
  LinearQueries queries;
  LinearState state, added, grad_state;
  float* v_t;           // [feature][position] what was written; with a denominator one more row of ones
  float* state_t;       // [dv][ldk] the state before the chunk, and z
  float* grad_state_t;  // [dv][ldk] the gradient of the one behind it, and of z
  float* grad;          // [position][ldv] gradient of a head's sums q S
  float* grad_t;        // [feature][position], and that of q z
  float* grad_sum;      // [position] gradient of q z
  float* grad_weights;  // [position][position]
  float* q_start;       // [position][ldk] queries times from_start
  float* grad_q;        // [position][ldk]
  float* grad_k;        // [position][ldk]
  float* grad_v;        // [position][ldv]
  float* grad_beta;     // [position]
  float* gates;         // decays by feature: [position][ldk] gradient of c
  double* row_gates;    // one decay a position: gradient of c, by pairs and by what rows read of the state
  double* key_gates;    // what keys leave to the state behind

  LinearBackwardScratch(const LinearLayout& l, FloatCarver& carve)
      : keys(l, carve),
        queries(l, carve),
        state(l, carve),
        added(l, carve),
        grad_state(l, carve),
        v_t(carve.take(l.dv_rows * kChunkLd)),
        state_t(carve.take(l.dv_rows * l.ldk)),
        grad_state_t(carve.take(l.dv_rows * l.ldk)),
        grad(carve.take(kChunkRows * l.ldv)),
        grad_t(carve.take(l.dv_rows * kChunkLd)),
        grad_sum(carve.take(kChunkLd)),
        grad_weights(carve.take(kChunkRows * kChunkLd)),
        q_start(carve.take(kChunkRows * l.ldk)),
        grad_q(carve.take(kChunkRows * l.ldk)),
        grad_k(carve.take(kChunkRows * l.ldk)),
        grad_v(carve.take(kChunkRows * l.ldv)),
        grad_beta(carve.take(kChunkLd)),
        gates(carve.take(l.gates == GateKind::feature ? kChunkRows * l.ldk : 0)),
        row_gates(reinterpret_cast<double*>(carve.take(2 * kChunkLd))),
        key_gates(reinterpret_cast<double*>(carve.take(2 * kChunkLd))) {}
};

// States that the backward keeps of a head.
inline int64_t linear_states(const Linear& p, const LinearLayout& l) {
  return (p.causal ? l.key_chunks : std::max(l.key_chunks, l.query_chunks)) + 1;
}

// Floats of a worker's scratch.
template <class Scratch>
int64_t scratch_floats(const LinearLayout& l) {
  FloatCarver count(nullptr);
  const Scratch counted(l, count);
  (void)counted;
  return count.used();
}

}  // namespace regard::kernel
