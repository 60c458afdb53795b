#pragma once

#include <cstdint>

namespace regard::kernel {

// Keys [begin, end) of a block of query rows. full: every row of the block may attend to every key of the
// span; else the tile's bits say which pairs are visible. begin == end: there is no such span.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
  bool full = false;
};

// A lowered mask answers two questions, so that a kernel visits the live tiles only and never scans the whole
// square: where the next visible keys of some rows are, and which pairs of a tile are visible. The functions
// are called from many threads at once and must be pure. next_span == nullptr: everything is visible.
struct TileMask {
  const void* self = nullptr;

  // The first live span of rows [row, row + rows) that begins at or after key `from` (a span already under
  // way at `from` is cut there). Spans of successive calls with from = end are sorted and disjoint. Keys
  // outside all spans are visible to none of the rows.
  Span (*next_span)(const void* self, int64_t batch, int64_t head, int64_t row, int64_t rows,
                    int64_t from) = nullptr;

  // Bit c of words[r] is set when row + r may attend to key + c; columns <= 64, the bits beyond are 0.
  void (*bits)(const void* self, int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key,
               int64_t columns, uint64_t* words) = nullptr;

  explicit operator bool() const { return next_span != nullptr; }
};

// The form that kernels take of an object with the two functions as members; it points at `mask`.
template <class Mask>
TileMask tile_mask_of(const Mask& mask) {
  return {&mask,
          [](const void* self, int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from) {
            return static_cast<const Mask*>(self)->next_span(batch, head, row, rows, from);
          },
          [](const void* self, int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key,
             int64_t columns, uint64_t* words) {
            static_cast<const Mask*>(self)->bits(batch, head, row, rows, key, columns, words);
          }};
}

}  // namespace regard::kernel
