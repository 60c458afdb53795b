#pragma once

#include <array>
#include <cstdint>

#include "regard/attention/bound_part.h"
#include "regard/attention/mask.h"
#include "regard/kernel/tile_mask.h"

namespace regard::attention {

// A mask bound to the sizes and the data of one call: the answers that kernels ask for. A value of a few
// kilobytes that borrows its data and fits on the stack of a run.
//
// Parts that show a row one interval of keys whose ends never move back from row to row (causal, window,
// prefix, blocks on the diagonal, lengths, sorted segments) collapse into a single band for each term when
// they are bound, so that their conjunction costs O(1) a row however many there are. The other parts answer
// the same two questions for themselves, spans and bits, and are asked only inside the band. A span of a term
// is a span of each of its parts, full where all of them are full; a span of the mask is one of some term.
// Nothing ever scans the whole square.
class BoundMask {
 public:
  // Lengths are clamped to [0, keys]. A part whose data is not given counts as letting everything through: an
  // upper bound, which is what a plan prints before it has seen data. Segments are looked through once, to
  // see whether they are sorted.
  BoundMask(const Mask& mask, int64_t queries, int64_t keys, const MaskData& data = {});

  // Row i < rows sees keys [i + begin, i + end), within [0, keys).
  struct Band {
    int64_t queries, keys_in_all;
    int64_t begin, end;
    int64_t rows, keys;
  };
  static BoundMask band(const Band& band);

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
  struct Diagonal {  // of blocks: row i sees the block of position i + offset
    int64_t size;
    int64_t offset;
  };
  struct Term {
    // The band: row i < rows sees keys [i + begin, i + end), within [0, keys) and what follows.
    int64_t begin = 0;
    int64_t end = 0;
    int64_t rows = 0;
    int64_t keys = 0;
    bool plain = true;  // nothing else moves the ends of a row
    bool lengths = false;
    bool segments = false;  // sorted ones
    uint8_t diagonal_count = 0;
    uint8_t part_count = 0;
    std::array<Diagonal, Mask::kMostParts> diagonals{};
    std::array<BoundPart, Mask::kMostParts> parts;
  };
  // Keys of one segment number.
  struct Segment {
    bool known = false;
    int32_t number = 0;
    Interval keys{};
  };

  struct Bind;
  Interval row_keys(const Term& term, int64_t batch, int64_t row, Segment& segment) const;
  Interval moved_row_keys(const Term& term, int64_t batch, int64_t row, Segment& segment) const;
  kernel::Span next_band_span(const Term& term, const kernel::Rows& rows, int64_t from) const;
  kernel::Span next_term_span(const Term& term, const kernel::Rows& rows, int64_t from) const;
  void term_bits(const Term& term, const kernel::Rows& rows, int64_t key, int64_t columns,
                 uint64_t* words) const;

  int64_t queries_;
  int64_t keys_;
  int64_t term_count_ = 0;  // 0: everything is visible
  std::array<Term, Mask::kMostTerms> terms_;
  MaskData data_;
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
