#include "regard/attention/bound_part.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace regard::attention {
namespace {

using kernel::Rows;
using kernel::Span;

int64_t floor_mod(int64_t a, int64_t n) {
  const int64_t rest = a % n;
  return rest < 0 ? rest + n : rest;
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

// A run of `count` rows sees a run of `count` keys of each period.
Span BoundStride::next_span(const MaskData& /*data*/, const Rows& rows, int64_t from, int64_t limit) const {
  if (period == 1) return {from, limit, true};
  if (period - rows.count < kGap) return {from, limit, false};
  const int64_t phase = floor_mod(from - (rows.begin + offset), period);
  const int64_t begin = phase < rows.count ? from : from + period - phase;
  if (begin >= limit) return {};
  const int64_t left = phase < rows.count ? rows.count - phase : rows.count;
  return {begin, std::min(begin + left, limit), rows.count == 1};
}

void BoundStride::restrict(const MaskData& /*data*/, const Rows& rows, int64_t key, int64_t columns,
                           uint64_t* words) const {
  if (period == 1) return;
  uint64_t comb = 0;  // every period-th bit
  for (int64_t c = 0; c < kWord; c += period) comb |= uint64_t{1} << c;
  int64_t first = floor_mod(rows.begin + offset - key, period);
  for (int64_t r = 0; r < rows.count; ++r) {
    words[r] &= first < columns ? comb << first : 0;
    if (++first == period) first = 0;
  }
}

Span BoundTail::next_span(const MaskData& /*data*/, const Rows& /*rows*/, int64_t from, int64_t limit) const {
  if (tail == size) return {from, limit, true};
  if (tail == 0) return {};
  const int64_t phase = from % size;
  const int64_t begin = std::max(from, from - phase + size - tail);
  if (begin >= limit) return {};
  return {begin, std::min(from - phase + size, limit), true};
}

void BoundTail::restrict(const MaskData& data, const Rows& rows, int64_t key, int64_t columns,
                         uint64_t* words) const {
  uint64_t seen = 0;
  const int64_t limit = key + columns;
  for (Span span = next_span(data, rows, key, limit); span.begin < span.end;
       span = span.end < limit ? next_span(data, rows, span.end, limit) : Span{}) {
    seen |= low_bits(span.end - key) & ~low_bits(span.begin - key);
  }
  for (int64_t r = 0; r < rows.count; ++r) words[r] &= seen;
}

namespace {

// What a query sees along one axis: count keys, step apart.
struct Comb {
  int64_t first;
  int64_t count;
  int64_t last(int64_t step) const { return first + (count - 1) * step; }
};

// Keys of the same residue class modulo the dilation form an axis of their own.
Comb axis_keys(int64_t at, int64_t size, int64_t kernel, int64_t dilation, Border border) {
  const int64_t rest = at % dilation;
  const int64_t length = (size - rest + dilation - 1) / dilation;
  const int64_t wanted = at / dilation - kernel / 2;
  if (border == Border::shift) {
    return {rest + std::clamp<int64_t>(wanted, 0, length - kernel) * dilation, kernel};
  }
  const int64_t begin = std::max<int64_t>(wanted, 0);
  return {rest + begin * dilation, std::min(wanted + kernel, length) - begin};
}

// From the least to the greatest key that queries [first, last] of an axis see. Within a residue class both
// ends grow with the query, so the first and the last query of each class decide.
struct Reach {
  int64_t begin;
  int64_t end;
};
Reach axis_reach(int64_t first, int64_t last, int64_t size, int64_t kernel, int64_t dilation, Border border) {
  Reach reach{size, 0};
  for (int64_t at = first; at <= std::min(last, first + dilation - 1); ++at) {
    reach.begin = std::min(reach.begin, axis_keys(at, size, kernel, dilation, border).first);
  }
  for (int64_t at = last; at >= std::max(first, last - dilation + 1); --at) {
    reach.end = std::max(reach.end, axis_keys(at, size, kernel, dilation, border).last(dilation) + 1);
  }
  return reach;
}

bool has(const Comb& comb, int64_t at, int64_t step) {
  const int64_t distance = at - comb.first;
  return distance >= 0 && distance % step == 0 && distance / step < comb.count;
}

}  // namespace

// One span for each row of the grid: what the queries whose windows contain that row reach.
Span BoundGrid::next_span(const MaskData& /*data*/, const Rows& rows, int64_t from, int64_t limit) const {
  const auto& g = grid;
  const int64_t width = g.width;
  const int64_t y0 = rows.begin / width;
  const int64_t y1 = (rows.begin + rows.count - 1) / width;
  const Reach down = axis_reach(y0, y1, g.height, g.kernel_y, g.dilation, g.border);
  for (int64_t y = std::max(from / width, down.begin); y < down.end && y * width < limit; ++y) {
    Reach across{width, 0};
    for (int64_t query_y = y0; query_y <= y1; ++query_y) {
      if (!has(axis_keys(query_y, g.height, g.kernel_y, g.dilation, g.border), y, g.dilation)) continue;
      const int64_t x0 = query_y == y0 ? rows.begin - y0 * width : 0;
      const int64_t x1 = query_y == y1 ? rows.begin + rows.count - 1 - y1 * width : width - 1;
      const Reach reach = axis_reach(x0, x1, width, g.kernel_x, g.dilation, g.border);
      across = {std::min(across.begin, reach.begin), std::max(across.end, reach.end)};
    }
    const int64_t begin = std::max(from, y * width + across.begin);
    const int64_t end = std::min(limit, y * width + across.end);
    if (begin < end) return {begin, end, false};
  }
  return {};
}

void BoundGrid::restrict(const MaskData& /*data*/, const Rows& rows, int64_t key, int64_t columns,
                         uint64_t* words) const {
  const auto& g = grid;
  for (int64_t r = 0; r < rows.count; ++r) {
    if (words[r] == 0) continue;
    const int64_t row = rows.begin + r;
    const Comb down = axis_keys(row / g.width, g.height, g.kernel_y, g.dilation, g.border);
    const Comb across = axis_keys(row % g.width, g.width, g.kernel_x, g.dilation, g.border);
    uint64_t seen = 0;
    for (int64_t y = key / g.width; y <= (key + columns - 1) / g.width; ++y) {
      if (!has(down, y, g.dilation)) continue;
      const int64_t first = y * g.width + across.first - key;  // as a bit
      const int64_t end = std::min(first + (across.count - 1) * g.dilation + 1, columns);
      if (g.dilation == 1) {
        if (end > 0 && first < columns) seen |= low_bits(end) & ~low_bits(std::max<int64_t>(first, 0));
        continue;
      }
      const int64_t skipped = first < 0 ? (-first + g.dilation - 1) / g.dilation * g.dilation : 0;
      for (int64_t bit = first + skipped; bit < end; bit += g.dilation) seen |= uint64_t{1} << bit;
    }
    words[r] &= seen;
  }
}

Span BoundBlocks::next_span(const MaskData& data, const Rows& rows, int64_t from, int64_t limit) const {
  const auto& table = data.blocks;
  const int64_t first = rows.begin / block_rows;
  const int64_t last = table.stride[2] == 0 ? first : (rows.begin + rows.count - 1) / block_rows;
  Span span{limit, limit, false};
  for (int64_t key = from; key < limit;) {
    const int64_t block = key / block_keys;
    bool any = false;
    bool every = true;
    for (int64_t y = first; y <= last; ++y) {
      const bool on = table(rows.batch, rows.head, y, block) != 0;
      any = any || on;
      every = every && on;
    }
    const int64_t end = std::min((block + 1) * block_keys, limit);
    if (span.begin == limit) {
      if (any) span = {key, end, every};
    } else if (!any || every != span.full) {
      return span;
    }
    if (any) span.end = end;
    key = end;
  }
  return span.begin == limit ? Span{} : span;
}

void BoundBlocks::restrict(const MaskData& data, const Rows& rows, int64_t key, int64_t columns,
                           uint64_t* words) const {
  const int64_t limit = key + columns;
  uint64_t seen = 0;
  int64_t known = -1;
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t y = (rows.begin + r) / block_rows;
    if (y != known) {
      known = y;
      seen = 0;
      for (int64_t at = key; at < limit;) {
        const int64_t block = at / block_keys;
        const int64_t end = std::min((block + 1) * block_keys, limit);
        if (data.blocks(rows.batch, rows.head, y, block) != 0)
          seen |= low_bits(end - key) & ~low_bits(at - key);
        at = end;
      }
    }
    words[r] &= seen;
  }
}

namespace {

uint64_t segment_bits(const MaskData& data, int64_t batch, int64_t row, int64_t key, int64_t columns) {
  const int32_t wanted = data.query_segments(batch, 0, 0, row);
  const int64_t step = data.key_segments.stride[3];
  const int32_t* at = data.key_segments.at(batch, 0, 0) + key * step;
  uint64_t word = 0;
  int64_t c = 0;
  if constexpr (std::endian::native == std::endian::little) {
    if (step == 1) {
      for (; c + 8 <= columns; c += 8) {
        uint8_t equal[8];
        for (int64_t i = 0; i < 8; ++i) equal[i] = at[c + i] == wanted;
        word |= nonzero_bytes(equal) << c;
      }
    }
  }
  for (; c < columns; ++c) word |= uint64_t{at[c * step] == wanted} << c;
  return word;
}

uint64_t dense_bits(const MaskData& data, int64_t batch, int64_t head, int64_t row, int64_t key,
                    int64_t columns) {
  const int64_t step = data.dense.stride[3];
  const uint8_t* at = data.dense.at(batch, head, row) + key * step;
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

}  // namespace

Span BoundSegments::next_span(const MaskData& data, const Rows& rows, int64_t from, int64_t limit) const {
  return scan(from, limit, [&](int64_t key, int64_t columns) {
    uint64_t any = segment_bits(data, rows.batch, rows.begin, key, columns);
    uint64_t every = any;
    uint64_t word = any;
    for (int64_t r = 1; r < rows.count; ++r) {
      const int64_t row = rows.begin + r;
      if (data.query_segments(rows.batch, 0, 0, row) != data.query_segments(rows.batch, 0, 0, row - 1)) {
        word = segment_bits(data, rows.batch, row, key, columns);
      }
      any |= word;
      every &= word;
    }
    return std::pair(any, every);
  });
}

void BoundSegments::restrict(const MaskData& data, const Rows& rows, int64_t key, int64_t columns,
                             uint64_t* words) const {
  restrict_rows(rows.count, words,
                [&](int64_t r) { return segment_bits(data, rows.batch, rows.begin + r, key, columns); });
}

Span BoundDense::next_span(const MaskData& data, const Rows& rows, int64_t from, int64_t limit) const {
  const int64_t count = data.dense.stride[2] == 0 ? 1 : rows.count;  // else the rows are the same
  return scan_rows(count, from, limit, [&](int64_t r, int64_t key, int64_t columns) {
    return dense_bits(data, rows.batch, rows.head, rows.begin + r, key, columns);
  });
}

void BoundDense::restrict(const MaskData& data, const Rows& rows, int64_t key, int64_t columns,
                          uint64_t* words) const {
  restrict_rows(rows.count, words, [&](int64_t r) {
    return dense_bits(data, rows.batch, rows.head, rows.begin + r, key, columns);
  });
}

}  // namespace regard::attention
