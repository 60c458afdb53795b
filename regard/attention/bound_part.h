#pragma once

#include <cstdint>
#include <variant>

#include "regard/attention/mask.h"
#include "regard/attention/row_words.h"
#include "regard/kernel/rows.h"
#include "regard/kernel/tile_mask.h"
#include "regard/kernel/view.h"

// Parts of a mask that show a row a set of keys rather than one interval, bound to the sizes of a call.
// BoundMask asks them inside the intervals of the other parts only.
namespace regard::attention {

// The data of a mask, borrowed. All broadcast: an axis of size 1 repeats.
struct MaskData {
  kernel::View<const uint8_t> dense;           // [B, Hq, Lq, Lk]
  kernel::View<const int64_t> key_lengths;     // [B, 1, 1, 1]
  kernel::View<const int32_t> query_segments;  // [B, 1, 1, Lq]
  kernel::View<const int32_t> key_segments;    // [B, 1, 1, Lk]
  kernel::View<const uint8_t> blocks;          // [B, Hq, blocks of rows, blocks of keys]
};

// Each answers what kernel::TileMask asks:
// next_span: the first live span of the rows that begins in [from, limit), cut at limit; empty if there is
// none. restrict: clears the bits of pairs that are not visible; columns <= 64.
struct BoundStride {
  int64_t period;
  int64_t offset;  // row i stands at i + offset

  kernel::Span next_span(const MaskData& data, const kernel::Rows& rows, int64_t from, int64_t limit) const;
  void restrict(const MaskData& data, const kernel::Rows& rows, int64_t key, int64_t columns,
                uint64_t* words) const;
};

struct BoundTail {
  int64_t size;
  int64_t tail;

  kernel::Span next_span(const MaskData& data, const kernel::Rows& rows, int64_t from, int64_t limit) const;
  void restrict(const MaskData& data, const kernel::Rows& rows, int64_t key, int64_t columns,
                uint64_t* words) const;
};

struct BoundGrid {
  part::Neighbourhood grid;

  kernel::Span next_span(const MaskData& data, const kernel::Rows& rows, int64_t from, int64_t limit) const;
  void restrict(const MaskData& data, const kernel::Rows& rows, int64_t key, int64_t columns,
                uint64_t* words) const;
};

struct BoundBlocks {
  int64_t block_rows;
  int64_t block_keys;

  kernel::Span next_span(const MaskData& data, const kernel::Rows& rows, int64_t from, int64_t limit) const;
  void restrict(const MaskData& data, const kernel::Rows& rows, int64_t key, int64_t columns,
                uint64_t* words) const;
};

// Segments in no order: compared key by key.
struct BoundSegments {
  kernel::Span next_span(const MaskData& data, const kernel::Rows& rows, int64_t from, int64_t limit) const;
  void restrict(const MaskData& data, const kernel::Rows& rows, int64_t key, int64_t columns,
                uint64_t* words) const;
};

struct BoundDense {
  kernel::Span next_span(const MaskData& data, const kernel::Rows& rows, int64_t from, int64_t limit) const;
  void restrict(const MaskData& data, const kernel::Rows& rows, int64_t key, int64_t columns,
                uint64_t* words) const;
};

using BoundPart = std::variant<BoundStride, BoundTail, BoundGrid, BoundBlocks, BoundSegments, BoundDense>;

}  // namespace regard::attention
