#pragma once

#include <cstdint>

#include "regard/kernel/view.h"

namespace regard::kernel {

// What a forward pass tells about its weights, beside its result, without keeping them. A weight is exp(logit
// - lse), before dropout: with a sink, the weights of a row sum to less than 1. Views without data are not
// wanted.
struct Observation {
  View<float> row_max;          // [B, Hq, Lq, 1] largest logit; -inf for an empty row
  View<float> entropy;          // [B, Hq, Lq, 1] nats, -sum p ln p over the keys; 0 for an empty row
  View<float> distance;         // [B, Hq, Lq, 1] sum p |i + distance_offset - j|
  int64_t distance_offset = 0;  // pages: what is added to their length - Lq
  View<float> column_sums;      // [B, Hq, Lk, 1] weight that a key received, summed over the queries
  // The largest weights of a row, ties: lowest key first; key -1 and weight 0 where a row sees fewer keys.
  View<int64_t> top_keys;   // [B, Hq, Lq, k]
  View<float> top_weights;  // [B, Hq, Lq, k]
  // Mean and maximum over blocks of block_rows x block_keys pairs, masked pairs counting 0.
  int64_t block_rows = 0;
  int64_t block_keys = 0;
  View<float> block_mean;  // [B, Hq, ceil(Lq / block_rows), ceil(Lk / block_keys)]
  View<float> block_max;   // same sizes
  // All weights of some rows.
  const int64_t* rows = nullptr;  // ascending, [0, Lq)
  int64_t row_count = 0;
  View<float> row_weights;  // [B, Hq, row_count, Lk]

  bool wants_top() const { return static_cast<bool>(top_keys); }
  bool wants_weights() const { return column_sums || block_mean || row_weights; }
  bool any() const { return row_max || entropy || distance || wants_top() || wants_weights(); }
};

}  // namespace regard::kernel
