#include "regard/attention/bound_mask.h"

#include <algorithm>

namespace regard::attention {
namespace {

using kernel::Rows;
using kernel::Span;

// An axis of size 1 repeats.
template <class T>
kernel::View<T> repeating(kernel::View<T> view) {
  for (size_t axis = 0; axis < 4; ++axis) {
    if (view.size[axis] == 1) view.stride[axis] = 0;
  }
  return view;
}

bool is_sorted(const kernel::View<const int32_t>& numbers) {
  for (int64_t b = 0; b < numbers.size[0]; ++b) {
    for (int64_t i = 1; i < numbers.size[3]; ++i) {
      if (numbers(b, 0, 0, i) < numbers(b, 0, 0, i - 1)) return false;
    }
  }
  return true;
}

// The first of [begin, count) sorted numbers that is not below (or_equal: above) a number.
int64_t search(const int32_t* numbers, int64_t step, int64_t begin, int64_t count, int32_t number,
               bool or_equal) {
  while (begin < count) {
    const int64_t middle = begin + (count - begin) / 2;
    const int32_t at = numbers[middle * step];
    if (at < number || (or_equal && at == number)) {
      begin = middle + 1;
    } else {
      count = middle;
    }
  }
  return begin;
}

int64_t floor_to(int64_t at, int64_t size) {
  const int64_t rest = at % size;
  return at - (rest < 0 ? rest + size : rest);
}

}  // namespace

// Adds a part to a term.
struct BoundMask::Bind {
  const BoundMask& mask;
  bool segments_sorted;
  Term& term;

  int64_t offset(Align align) const { return align == Align::bottom_right ? mask.keys_ - mask.queries_ : 0; }
  int64_t far() const { return mask.queries_ + mask.keys_; }  // beyond any distance, so that sums stay small
  void add(const BoundPart& part) const { term.parts[term.part_count++] = part; }

  void operator()(const part::Causal& p) const { term.end = std::min(term.end, offset(p.align) + 1); }
  void operator()(const part::Window& p) const {
    if (p.left >= 0) term.begin = std::max(term.begin, offset(p.align) - std::min(p.left, far()));
    if (p.right >= 0) term.end = std::min(term.end, offset(p.align) + std::min(p.right, far()) + 1);
  }
  void operator()(const part::Prefix& p) const { term.keys = std::min(term.keys, p.count); }
  void operator()(const part::FirstRows& p) const { term.rows = std::min(term.rows, p.count); }
  void operator()(const part::SameBlock& p) const {
    term.diagonals[term.diagonal_count++] = {std::min(p.size, far() + 1), offset(p.align)};
  }
  void operator()(const part::Stride& p) const {
    add(BoundStride{std::min(p.period, far() + 1), offset(p.align)});
  }
  void operator()(const part::BlockTail& p) const { add(BoundTail{p.size, p.tail}); }
  void operator()(const part::Neighbourhood& p) const { add(BoundGrid{p}); }
  void operator()(const part::KeyLengths&) const { term.lengths = static_cast<bool>(mask.data_.key_lengths); }
  void operator()(const part::Segments&) const {
    if (!mask.data_.query_segments || !mask.data_.key_segments) return;
    if (segments_sorted) {
      term.segments = true;
    } else {
      add(BoundSegments{});
    }
  }
  void operator()(const part::Blocks& p) const {
    if (mask.data_.blocks) add(BoundBlocks{p.rows, p.keys});
  }
  void operator()(const part::Dense&) const {
    if (mask.data_.dense) add(BoundDense{});
  }
};

BoundMask::BoundMask(const Mask& mask, int64_t queries, int64_t keys, const MaskData& data)
    : queries_(queries), keys_(keys) {
  data_ = {repeating(data.dense), repeating(data.key_lengths), repeating(data.query_segments),
           repeating(data.key_segments), repeating(data.blocks)};
  const bool sorted = is_sorted(data.query_segments) && is_sorted(data.key_segments);
  for (const Mask::Term& parts : mask.terms()) {
    Term& term = terms_[term_count_++];
    term.begin = -queries;
    term.end = keys;
    term.rows = queries;
    term.keys = keys;
    for (const Mask::Part& part : parts) std::visit(Bind{*this, sorted, term}, part);
    if (term.begin >= term.end) term.keys = 0;
    term.plain = !term.lengths && !term.segments && term.diagonal_count == 0;
  }
}

BoundMask BoundMask::band(const Band& band) {
  BoundMask mask({}, band.queries, band.keys_in_all);
  mask.term_count_ = 1;
  Term& term = mask.terms_[0];
  term.begin = band.begin;
  term.end = band.end;
  term.rows = band.rows;
  term.keys = band.begin < band.end ? band.keys : 0;
  return mask;
}

kernel::TileMask BoundMask::tile_mask() const {
  return term_count_ == 0 ? kernel::TileMask{} : kernel::tile_mask_of(*this);
}

// Of a row of the term's rows. begin may lie beyond end; both never decrease from row to row.
inline BoundMask::Interval BoundMask::row_keys(const Term& term, int64_t batch, int64_t row,
                                               Segment& segment) const {
  if (!term.plain) return moved_row_keys(term, batch, row, segment);
  return {std::clamp<int64_t>(row + term.begin, 0, term.keys),
          std::clamp<int64_t>(row + term.end, 0, term.keys)};
}

BoundMask::Interval BoundMask::moved_row_keys(const Term& term, int64_t batch, int64_t row,
                                              Segment& segment) const {
  int64_t last = term.keys;
  Interval seen{row + term.begin, row + term.end};
  if (term.lengths) last = std::clamp<int64_t>(data_.key_lengths(batch, 0, 0, 0), 0, last);
  for (int64_t d = 0; d < term.diagonal_count; ++d) {
    const Diagonal& diagonal = term.diagonals[d];
    const int64_t begin = floor_to(row + diagonal.offset, diagonal.size);
    seen = {std::max(seen.begin, begin), std::min(seen.end, begin + diagonal.size)};
  }
  if (term.segments) {
    const int32_t number = data_.query_segments(batch, 0, 0, row);
    if (!segment.known || segment.number != number) {
      const int32_t* numbers = data_.key_segments.at(batch, 0, 0);
      const int64_t step = data_.key_segments.stride[3];
      const int64_t begin = search(numbers, step, 0, keys_, number, false);
      segment = {true, number, {begin, search(numbers, step, begin, keys_, number, true)}};
    }
    seen = {std::max(seen.begin, segment.keys.begin), std::min(seen.end, segment.keys.end)};
  }
  return {std::clamp<int64_t>(seen.begin, 0, last), std::clamp<int64_t>(seen.end, 0, last)};
}

// As both ends never decrease, the first and the last row say what some row sees and what all rows see.
Span BoundMask::next_band_span(const Term& term, const Rows& rows, int64_t from) const {
  const int64_t count = std::min(rows.count, term.rows - rows.begin);
  if (count <= 0) return {};
  Segment segment;
  const Interval first = row_keys(term, rows.batch, rows.begin, segment);
  const Interval last = count == 1 ? first : row_keys(term, rows.batch, rows.begin + count - 1, segment);
  from = std::max(from, first.begin);
  if (from >= last.end) return {};
  if (last.begin < first.end && count == rows.count) {
    if (from < last.begin) return {from, last.begin, false};
    if (from < first.end) return {from, first.end, true};
  }
  return {from, last.end, false};
}

// Parts take turns in moving the beginning ahead until all of them are alive there; each is asked only as far
// as those before it reach.
Span BoundMask::next_term_span(const Term& term, const Rows& rows, int64_t from) const {
  Span span = next_band_span(term, rows, from);
  for (int64_t p = 0; p < term.part_count && span.begin < span.end;) {  // the parts before p agree
    const Span own = std::visit(
        [&](const auto& part) { return part.next_span(data_, rows, span.begin, span.end); }, term.parts[p]);
    const bool none = own.begin >= own.end;  // as far as the others reach
    if (none || own.begin > span.begin) {
      span = next_band_span(term, rows, none ? span.end : own.begin);
      if (none || p > 0 || span.begin != own.begin) {
        p = 0;
        continue;
      }
    }
    span = {span.begin, std::min(span.end, own.end), span.full && own.full};
    ++p;
  }
  return span;
}

// The first span of any term, cut where a full one begins or ends, so that what is full stays so.
Span BoundMask::next_span(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from) const {
  const Rows at{batch, head, row, rows};
  if (term_count_ == 1) return next_term_span(terms_[0], at, from);
  if (term_count_ == 0) return from < keys_ ? Span{from, keys_, true} : Span{};
  Span next{keys_, keys_, false};
  int64_t cut = keys_;  // where a full span of another term begins
  for (int64_t t = 0; t < term_count_; ++t) {
    const Span span = next_term_span(terms_[t], at, from);
    if (span.begin >= span.end || span.begin > next.begin) {
      if (span.full && span.begin < span.end) cut = std::min(cut, span.begin);
    } else if (span.begin < next.begin) {
      if (next.full && next.begin < next.end) cut = std::min(cut, next.begin);
      next = span;
    } else if (span.full != next.full) {
      if (span.full) next = span;
    } else {
      // Of two partial ones the shorter: what comes after it may be full.
      next.end = span.full ? std::max(next.end, span.end) : std::min(next.end, span.end);
    }
  }
  if (next.begin >= next.end) return {};
  if (!next.full) next.end = std::min(next.end, cut);
  return next;
}

void BoundMask::term_bits(const Term& term, const Rows& rows, int64_t key, int64_t columns,
                          uint64_t* words) const {
  Segment segment;
  uint64_t any = 0;
  const int64_t count = std::clamp<int64_t>(term.rows - rows.begin, 0, rows.count);
  std::fill(words + count, words + rows.count, 0);
  for (int64_t r = 0; r < count; ++r) {
    const Interval seen = row_keys(term, rows.batch, rows.begin + r, segment);
    const int64_t begin = std::clamp<int64_t>(seen.begin - key, 0, columns);
    const int64_t end = std::clamp<int64_t>(seen.end - key, 0, columns);
    words[r] = begin < end ? low_bits(end) & ~low_bits(begin) : 0;
    any |= words[r];
  }
  for (int64_t p = 0; p < term.part_count && any != 0; ++p) {
    std::visit([&](const auto& part) { part.restrict(data_, rows, key, columns, words); }, term.parts[p]);
  }
}

void BoundMask::bits(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key, int64_t columns,
                     uint64_t* words) const {
  columns = std::min(columns, keys_ - key);
  if (term_count_ == 0) {
    std::fill(words, words + rows, low_bits(columns));
    return;
  }
  term_bits(terms_[0], {batch, head, row, rows}, key, columns, words);
  constexpr int64_t kRows = 64;  // of a scratch on the stack
  for (int64_t first = 0; first < rows && term_count_ > 1; first += kRows) {
    const Rows some{batch, head, row + first, std::min(kRows, rows - first)};
    uint64_t more[kRows];
    for (int64_t t = 1; t < term_count_; ++t) {
      term_bits(terms_[t], some, key, columns, more);
      for (int64_t r = 0; r < some.count; ++r) words[first + r] |= more[r];
    }
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
