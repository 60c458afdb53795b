#pragma once

#include "regard/kernel/additive.h"
#include "regard/kernel/backward_layout.h"
#include "regard/kernel/prefill_layout.h"

// Scratch of the additive kernels; sizes hold for every target.
namespace regard::kernel {

// A packed row or key holds its numbers and as many exponentials of them.
inline Forward with_exponentials(Forward p) {
  p.q.size[3] = p.k.size[3] = 2 * round_up(p.k.size[3], 8);
  return p;
}

struct AdditiveLayout {
  ForwardTiling tiling;
  PrefillLayout strips;
  int64_t vector_floats;  // of a query head

  AdditiveLayout(const Additive& problem, int workers)
      : strips(with_exponentials(problem.forward), tiling, workers),
        vector_floats(round_up(problem.forward.q.size[3] + 1, kMaxLanes)) {}

  int64_t vectors(const Forward& p) const { return p.q.size[0] * p.q.size[1] * vector_floats; }
  size_t bytes(const Forward& p, int workers) const {
    return static_cast<size_t>(vectors(p)) * 4 + strips.bytes(workers);
  }
};

// A task of the backward: some keys of one key/value head against all query rows of its group.
struct AdditiveBackwardLayout {
  int64_t chunks, chunk_keys;
  int64_t inputs;                   // Dk
  int64_t dv;                       // Dv rounded up to panels
  int64_t vector_floats, heads;     // of all batch entries
  int64_t row_floats, tile_floats;  // of a packed tile of rows; of the hidden units of a tile
  int64_t partial_floats;           // grad_q by chunks; 0: one chunk

  explicit AdditiveBackwardLayout(const AdditiveBackward& problem) {
    const Forward& p = problem.additive.forward;
    const int64_t kv_heads = p.k.size[0] * p.k.size[1];
    const int64_t keys = round_up(std::max<int64_t>(p.k.size[2], 1), kMaxCols);
    // Eight tasks are enough to go round; a chunk's part of grad_q must be worth its memory.
    const int64_t wanted = kv_heads >= 8 ? 1 : 8 / std::max<int64_t>(kv_heads, 1);
    chunk_keys = std::min(std::max(round_up((keys + wanted - 1) / wanted, kBlock), 2 * kBlock),
                          round_up(keys, kBlock));
    chunks = (keys + chunk_keys - 1) / chunk_keys;
    inputs = p.q.size[3];
    dv = round_up(p.v.size[3], kMaxCols);
    vector_floats = round_up(inputs + 1, kMaxLanes);
    heads = p.q.size[0] * p.q.size[1];
    row_floats = 2 * round_up(inputs * 12 + kMaxLanes, kMaxLanes);
    tile_floats = inputs * 12 * kMaxCols;
    partial_floats = chunks > 1 && problem.grad_q ? heads * chunks * p.q.size[2] * inputs : 0;
  }

  size_t vector_bytes() const { return static_cast<size_t>(heads * vector_floats) * 4; }
  size_t sums_bytes() const { return static_cast<size_t>(round_up(heads * chunks * inputs, 8)) * 8; }
  size_t worker_bytes() const {
    const int64_t floats =
        chunk_keys * (3 * inputs + 2 * dv)  // keys with exponentials, grad_k, values, grad_v
        + row_floats + tile_floats          // rows, hidden units
        + inputs * (12 + 1) * kMaxLanes     // grad_q of a tile and grad_vector, by lanes
        + 12 * dv                           // grad_out
        + 2 * 12 * kMaxCols                 // weights and their gradients
        + kMaxCols * round_up(std::max(inputs, dv), kMaxLanes) + 4 * kMaxLanes;
    return static_cast<size_t>(round_up(floats, kMaxLanes)) * 4 +
           static_cast<size_t>(round_up(chunk_keys / 16 * 4, 64));
  }
  size_t bytes(int workers) const {
    return vector_bytes() + sums_bytes() + static_cast<size_t>(round_up(partial_floats, kMaxLanes)) * 4 +
           static_cast<size_t>(workers) * worker_bytes();
  }
};

}  // namespace regard::kernel
