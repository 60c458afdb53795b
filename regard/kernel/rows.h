#pragma once

#include <cstdint>

#include "regard/kernel/forward.h"

// What the kernels ask about rows and tiles outside their inner loops: plain code, the same for every target.
namespace regard::kernel {

// Query rows [begin, begin + count) of one batch entry and query head.
struct Rows {
  int64_t batch;
  int64_t head;
  int64_t begin;
  int64_t count;
};

// The part of a tile's columns that some of its rows see; begin == end: none. full: every row sees all of it.
struct LiveTile {
  uint8_t begin;
  uint8_t end;
  bool full;
  uint8_t unused;
};

struct PanelRange {
  int64_t begin;
  int64_t end;
};

// Fills live[0 .. panels of `width` keys in [begin, end)) for rows [row, row + count), and returns the range
// of panels that are not empty (begin >= end: all are). begin is a multiple of width.
PanelRange live_panels(const Forward& p, int64_t batch, int64_t head, int64_t row, int64_t count,
                       int64_t begin, int64_t end, int64_t width, LiveTile* live);

// What turns a row's number into its position on ALiBi's ruler.
inline int64_t alibi_offset(const Forward& p, int64_t batch) {
  return p.pages ? p.pages.end(batch) - p.q.size[2] + p.alibi_offset : p.alibi_offset;
}

// Whether a row may take part of a key's value: the mask allows it and the bias does not forbid it by
// -infinity.
bool sees(const Forward& p, int64_t batch, int64_t head, int64_t row, int64_t key);

float element(const ConstAnyView& view, int64_t batch, int64_t head, int64_t position, int64_t feature);

// Ends a row whose weights 2^(logit - maximum) sum up to `sum`: adds the sink, writes the LSE, returns the
// factor that turns the weighted sum of values into the output (0 for a row that saw nothing). maximum in
// units of log2.
float close_row(const Forward& p, int64_t batch, int64_t head, int64_t row, float maximum, float sum);

}  // namespace regard::kernel
