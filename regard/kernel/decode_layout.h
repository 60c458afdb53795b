#pragma once

#include "regard/kernel/prefill_layout.h"

// Scratch of the decode kernel; sizes hold for every target.
namespace regard::kernel {

constexpr int64_t kDecodeKeys =
    128;  // keys between two looks at the row maximum: their K and V stay in the L2 cache
constexpr int64_t kDecodePieces = kDecodeKeys / kPageUnit;  // of a chunk: each lies in one place

struct DecodeLayout {
  int64_t rows;        // query rows that share a key/value head: group * Lq, row = head in group * Lq + query
  int64_t split_keys;  // keys of a task
  int64_t splits;
  int64_t q_stride, score_stride, out_stride;  // floats from one row to the next
  int64_t live_stride;                         // LiveTiles from one row to the next
  int64_t partials;  // rows of partial results; 0: tasks write the output themselves

  DecodeLayout(const Forward& p, const ForwardTiling& tiling) {
    const int64_t kv_heads = p.k.size[1];
    rows = kv_heads > 0 ? p.q.size[1] / kv_heads * p.q.size[2] : 0;
    split_keys = round_up(std::max<int64_t>(tiling.split_keys, 1), kDecodeKeys);
    splits = std::max<int64_t>((p.k.size[2] + split_keys - 1) / split_keys, 1);
    q_stride = round_up(p.q.size[3], kMaxLanes);
    score_stride = kDecodeKeys + kMaxCols;  // not a power of two: rows would fall on the same cache sets
    out_stride = round_up(p.v.size[3], kMaxLanes);
    live_stride = kDecodeKeys / 16;
    partials = splits > 1 ? p.q.size[0] * p.q.size[1] * p.q.size[2] * splits : 0;
  }

  // Of a row's partial result: maximum and sum stand before the weighted values.
  int64_t partial_floats() const { return kMaxLanes + out_stride; }
  size_t worker_bytes() const {
    return static_cast<size_t>(
        (2 * kDecodeKeys + 4 * q_stride) * 4 +
        round_up(rows * ((q_stride + score_stride + out_stride + kMaxLanes) * 4 + live_stride * 4 + 4), 64) +
        64);
  }
  size_t bytes(int workers) const {
    return static_cast<size_t>(partials * partial_floats() * 4) +
           static_cast<size_t>(workers) * worker_bytes();
  }
};

}  // namespace regard::kernel
