#include "regard/attention/bound_mask.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace regard::attention {
namespace {

using kernel::Span;

constexpr int64_t kWord = 64;

uint64_t low_bits(int64_t count) {
  return count >= kWord ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// Bit i of the result: byte i of eight is not 0.
uint64_t nonzero_bytes(const uint8_t* bytes) {
  uint64_t x;
  std::memcpy(&x, bytes, 8);
  constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7fULL;
  const uint64_t ones = ((((x & kLow) + kLow) | x) & ~kLow) >> 7;  // 1 in each nonzero byte
  return (ones * 0x0102040810204080ULL) >> 56;
}

}  // namespace

BoundMask::BoundMask(const Mask& mask, int64_t queries, int64_t keys, kernel::View<const uint8_t> dense,
                     kernel::View<const int64_t> lengths)
    : queries_(queries), keys_(keys), begin_(-queries), end_(keys), everything_(mask.sees_everything()) {
  const int64_t far = queries + keys;  // beyond any distance, so that sums stay small
  for (const Mask::Part& part : mask.parts()) {
    const int64_t offset = part.align == Align::bottom_right ? keys - queries : 0;
    switch (part.kind) {
      case Mask::Part::Kind::causal:
        end_ = std::min(end_, offset + 1);
        break;
      case Mask::Part::Kind::window:
        if (part.left >= 0) begin_ = std::max(begin_, offset - std::min(part.left, far));
        if (part.right >= 0) end_ = std::min(end_, offset + std::min(part.right, far) + 1);
        break;
      case Mask::Part::Kind::key_lengths:
        lengths_ = lengths;
        break;
      case Mask::Part::Kind::dense:
        dense_ = dense;
        break;
    }
  }
}

kernel::TileMask BoundMask::tile_mask() const {
  if (everything_) return {};
  return {this,
          [](const void* self, int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from) {
            return static_cast<const BoundMask*>(self)->next_span(batch, head, row, rows, from);
          },
          [](const void* self, int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key,
             int64_t columns, uint64_t* words) {
            static_cast<const BoundMask*>(self)->bits(batch, head, row, rows, key, columns, words);
          }};
}

BoundMask::Interval BoundMask::row_keys(int64_t batch, int64_t row) const {
  int64_t last = keys_;
  if (lengths_) {
    const int64_t entry = lengths_.size[0] == 1 ? 0 : batch;
    last = std::clamp<int64_t>(lengths_.data[entry * lengths_.stride[0]], 0, keys_);
  }
  if (begin_ >= end_) last = 0;
  return {std::clamp<int64_t>(row + begin_, 0, last), std::clamp<int64_t>(row + end_, 0, last)};
}

// Both ends of the rows' intervals never decrease from row to row: the first and the last row say what some
// row sees and what all rows see.
Span BoundMask::next_band_span(int64_t batch, int64_t row, int64_t rows, int64_t from) const {
  const Interval first = row_keys(batch, row);
  const Interval last = row_keys(batch, row + rows - 1);
  from = std::max(from, first.begin);
  if (from >= last.end) return {};
  if (last.begin < first.end) {
    if (from < last.begin) return {from, last.begin, false};
    if (from < first.end) return {from, first.end, true};
  }
  return {from, last.end, false};
}

uint64_t BoundMask::dense_bits(int64_t batch, int64_t head, int64_t row, int64_t key, int64_t columns) const {
  const int64_t step = dense_.size[3] == 1 ? 0 : dense_.stride[3];
  const uint8_t* at = dense_.data + (dense_.size[0] == 1 ? 0 : batch * dense_.stride[0]) +
                      (dense_.size[1] == 1 ? 0 : head * dense_.stride[1]) +
                      (dense_.size[2] == 1 ? 0 : row * dense_.stride[2]) + key * step;
  if (step == 0) return *at != 0 ? low_bits(columns) : 0;
  uint64_t word = 0;
  int64_t c = 0;
  if constexpr (std::endian::native == std::endian::little) {
    if (step == 1) {
      for (; c + 8 <= columns; c += 8) word |= nonzero_bytes(at + c) << c;
    }
  }
  for (; c < columns; ++c) word |= uint64_t{at[c * step] != 0} << c;
  return word;
}

// Reads keys [from, limit) word by word until the kind of the words changes. A span ends where the next one
// begins, so that successive calls read each word at most twice.
Span BoundMask::next_dense_span(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from,
                                int64_t limit) const {
  if (dense_.size[2] == 1 || dense_.stride[2] == 0) rows = 1;  // the rows are the same
  Span span{limit, limit, false};
  for (int64_t key = from; key < limit; key += kWord) {
    const int64_t columns = std::min(kWord, limit - key);
    uint64_t any = 0;
    uint64_t every = low_bits(columns);
    for (int64_t r = 0; r < rows; ++r) {
      const uint64_t word = dense_bits(batch, head, row + r, key, columns);
      any |= word;
      every &= word;
    }
    const bool full = every == low_bits(columns);
    if (span.begin == limit) {
      if (any == 0) continue;
      span = {key + std::countr_zero(any), 0, full};
    } else if (any == 0 || full != span.full) {
      return span;
    }
    span.end = key + kWord - std::countl_zero(any);
  }
  return span.begin == limit ? Span{} : span;
}

Span BoundMask::next_span(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from) const {
  Span band = next_band_span(batch, row, rows, from);
  if (!dense_) return band;
  while (band.begin < band.end) {
    const Span dense = next_dense_span(batch, head, row, rows, band.begin, band.end);
    if (dense.begin < dense.end) return {dense.begin, dense.end, band.full && dense.full};
    band = next_band_span(batch, row, rows, band.end);
  }
  return {};
}

void BoundMask::bits(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key, int64_t columns,
                     uint64_t* words) const {
  columns = std::min(columns, keys_ - key);
  for (int64_t r = 0; r < rows; ++r) {
    const Interval seen = row_keys(batch, row + r);
    const int64_t begin = std::clamp<int64_t>(seen.begin - key, 0, columns);
    const int64_t end = std::clamp<int64_t>(seen.end - key, 0, columns);
    uint64_t word = begin < end ? low_bits(end) & ~low_bits(begin) : 0;
    if (dense_ && word != 0) word &= dense_bits(batch, head, row + r, key, columns);
    words[r] = word;
  }
}

TileCount count_tiles(const BoundMask& mask, int64_t batch, int64_t head, int64_t rows, int64_t columns) {
  TileCount count;
  const int64_t keys = mask.keys();
  const int64_t across = (keys + columns - 1) / columns;
  for (int64_t row = 0; row < mask.queries(); row += rows) {
    count.all += across;
    int64_t counted = 0;  // tiles to the left of this one are counted
    const int64_t height = std::min(rows, mask.queries() - row);
    for (Span span = mask.next_span(batch, head, row, height, 0); span.begin < span.end;
         span = mask.next_span(batch, head, row, height, span.end)) {
      const int64_t first = std::max(counted, span.begin / columns);
      const int64_t last = (span.end + columns - 1) / columns;
      count.live += std::max<int64_t>(0, last - first);
      if (span.full) {
        const int64_t inner = (span.begin + columns - 1) / columns;
        const int64_t outer = span.end == keys ? across : span.end / columns;
        count.full += std::max<int64_t>(0, outer - inner);
      }
      counted = std::max(counted, last);
    }
  }
  return count;
}

}  // namespace regard::attention
