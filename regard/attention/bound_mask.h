#pragma once

#include <cstdint>

#include "regard/attention/mask.h"
#include "regard/kernel/tile_mask.h"
#include "regard/kernel/view.h"

namespace regard::attention {

// A mask bound to the sizes and the data of one call: the answers that kernels ask for. A small value that
// borrows its data and fits on the stack of a run.
//
// Parts that show a row one interval of keys whose ends move along with the row (causal, window, lengths)
// collapse into a single band when they are bound, so that their conjunction costs O(1) a row however many
// there are. The other parts answer the same two questions for themselves, spans and bits, and are asked only
// inside the band: a span of the conjunction is a span of each part, full where all of them are full. Nothing
// ever scans the whole square.
class BoundMask {
 public:
  // dense: any broadcast of [B, Hq, queries, keys]; lengths: [B or 1, 1, 1, 1], clamped to [0, keys]. A part
  // whose data is not given counts as letting everything through: an upper bound, which is what a plan prints
  // before it has seen data.
  BoundMask(const Mask& mask, int64_t queries, int64_t keys, kernel::View<const uint8_t> dense = {},
            kernel::View<const int64_t> lengths = {});

  // The form that kernels take; it points at *this. Empty where everything is visible.
  kernel::TileMask tile_mask() const;

  // See kernel::TileMask.
  kernel::Span next_span(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from) const;
  void bits(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key, int64_t columns,
            uint64_t* words) const;

  int64_t queries() const { return queries_; }
  int64_t keys() const { return keys_; }

 private:
  struct Interval {
    int64_t begin;
    int64_t end;
  };
  Interval row_keys(int64_t batch, int64_t row) const;
  kernel::Span next_band_span(int64_t batch, int64_t row, int64_t rows, int64_t from) const;
  kernel::Span next_dense_span(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from,
                               int64_t limit) const;
  uint64_t dense_bits(int64_t batch, int64_t head, int64_t row, int64_t key, int64_t columns) const;

  int64_t queries_;
  int64_t keys_;
  // The band: row i sees keys [i + begin_, i + end_), clipped to [0, length of the batch entry).
  int64_t begin_;
  int64_t end_;
  bool everything_;
  kernel::View<const uint8_t> dense_;
  kernel::View<const int64_t> lengths_;
};

// How much of the square is alive, in tiles of `rows` queries by `columns` keys, for one batch entry and
// head.
struct TileCount {
  int64_t live = 0;  // tiles with a key that some row may see
  int64_t full = 0;  // of these, tiles without a masked pair
  int64_t all = 0;
};
TileCount count_tiles(const BoundMask& mask, int64_t batch, int64_t head, int64_t rows, int64_t columns);

}  // namespace regard::attention
