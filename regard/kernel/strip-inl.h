// A strip: some query rows of one head against all keys. Raw scores of up to a block of keys stay in the L2
// cache, so the row maximum is exact before the first exponential and the weights are there for whoever wants
// to observe them.
#if defined(REGARD_KERNEL_STRIP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_STRIP_INL_H_
#undef REGARD_KERNEL_STRIP_INL_H_
#else
#define REGARD_KERNEL_STRIP_INL_H_
#endif

#include "regard/kernel/close-inl.h"
#include "regard/kernel/dropout-inl.h"
#include "regard/kernel/logits-inl.h"
#include "regard/kernel/observe-inl.h"
#include "regard/kernel/pack-inl.h"
#include "regard/kernel/prefill_layout.h"
#include "regard/kernel/rows.h"
#include "regard/kernel/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Packed keys and values of one head.
struct Panels {
  float* keys;          // [Lk / kCols][Dk][kCols]
  float* values;        // [Dv / kCols][key_stride][kCols]
  uint64_t* nonfinite;  // a bit per key whose value has a NaN or infinity
  int64_t key_stride;

  Panels(const PrefillLayout& layout, std::byte* at) : key_stride(layout.keys) {
    Carver carve(at);
    keys = carve.take<float>(layout.key_floats);
    values = carve.take<float>(layout.value_floats);
    nonfinite = carve.take<uint64_t>(layout.flag_words);
  }
};

// Scratch of a worker. A strip is `tiles` stacked register tiles; everything per row is indexed tile by tile.
struct StripScratch {
  float* q;        // [tiles][Dk / kCols][kRows][kCols], scaled
  float* scores;   // [tiles][panels of a block][kRows][kCols]; weights after the exponential, of one block
  float* out;      // [tiles][Dv / kCols][kRows][kCols], not yet divided by the sum
  float* peaks;    // [tiles][kRows][kPeaks] running maxima of the block
  float* sums;     // [tiles][kRows][kLanes] running sum of weights
  float* row_max;  // [tiles][kRows]
  float* staging;
  float* block_max;                                         // [tiles][kRows] maximum that the block's weights
                                                            // are relative to
  PanelRange* range;                                        // of the block
  LiveTile* live;                                           // [tiles][panels of a block]
  int64_t q_stride, score_stride, out_stride, live_stride;  // from one tile to the next
  std::byte* end;                                           // behind all that

  StripScratch(const PrefillLayout& layout, int64_t dk, int64_t dv, std::byte* at) {
    Carver carve(at);
    q = carve.take<float>(layout.query_floats);
    scores = carve.take<float>(layout.kept_blocks * layout.score_floats);
    out = carve.take<float>(layout.out_floats);
    peaks = carve.take<float>(kPeakVecs * layout.row_floats);
    sums = carve.take<float>(layout.row_floats);
    row_max = carve.take<float>(layout.row_floats);
    staging = carve.take<float>(layout.staging_floats);
    block_max = carve.take<float>(layout.kept_blocks * layout.row_floats);
    constexpr int64_t kRangeStep = PrefillLayout::kRangeBytes / static_cast<int64_t>(sizeof(PanelRange));
    range = carve.take<PanelRange>(layout.kept_blocks * kRangeStep);
    live =
        carve.take<LiveTile>(layout.kept_blocks * layout.live_bytes / static_cast<int64_t>(sizeof(LiveTile)));
    q_stride = kRows * round_up(dk, kCols);
    score_stride = kRows * layout.block_keys;
    out_stride = kRows * round_up(dv, kCols);
    live_stride = layout.block_keys / kCols;
    end = carve.end();
  }

  // The scratch of one block of those that are kept.
  StripScratch of_block(const PrefillLayout& layout, int64_t block) const {
    const int64_t index = layout.kept_blocks == 1 ? 0 : block / layout.block_keys;
    StripScratch mine = *this;
    mine.scores += index * layout.score_floats;
    mine.block_max += index * layout.row_floats;
    mine.range += index;
    mine.live += index * layout.live_bytes / static_cast<int64_t>(sizeof(LiveTile));
    return mine;
  }
};

// Which panels of keys [begin, end) the strip's tiles see, and how.
HWY_INLINE PanelRange find_live(const Rows& rows, const Forward& p, int64_t begin, int64_t end,
                                const StripScratch& scratch) {
  const int64_t panels = (end - begin + kCols - 1) / kCols;
  PanelRange range{panels, 0};
  int64_t t = 0;
  for (int64_t row = 0; row < rows.count; row += kRows, ++t) {
    LiveTile* live = scratch.live + t * scratch.live_stride;
    const PanelRange found = live_panels(p, rows.batch, rows.head, rows.begin + row,
                                         HWY_MIN(kRows, rows.count - row), begin, end, kCols, live);
    range.begin = HWY_MIN(range.begin, found.begin);
    range.end = HWY_MAX(range.end, found.end);
  }
  return range;
}

// How rows of q and panels of keys become products, before anything of a Spec is applied: the one part of a
// strip that another kind of score replaces.
template <class T>
struct DotScores {
  int64_t features;  // floats of a packed row or key

  explicit DotScores(const Forward& p) : features(p.q.size[3]) {}

  // Fills s.q.
  HWY_INLINE void load_queries(const Forward& p, const LogitRule& rule, const Rows& rows,
                               const StripScratch& s) const {
    const View<const T> q = p.q.as<const T>();
    if (rows.count % kRows != 0 || features % kCols != 0)  // what packing leaves out of the tiles
      for (int64_t i = 0; i < (rows.count + kRows - 1) / kRows * s.q_stride; ++i) s.q[i] = 0.0F;
    for (int64_t r = 0; r < rows.count; ++r)
      pack_query(q.at(rows.batch, rows.head, rows.begin + r), q.stride[3], features, rule.query_factor,
                 r % kRows, s.q + r / kRows * s.q_stride);
  }

  // Products of a tile's rows with a panel of keys over features [0, kFeatureChunk). Whether all of them are
  // in `acc`; else the rest is added to the tile, which holds acc, by finish().
  HWY_INLINE bool multiply(const Rows& /*rows*/, const float* q, const float* keys, Accumulators& acc) const {
    multiply_features(D(), q, kRows, keys, 0, features, acc);
    return features <= kFeatureChunk;
  }
  HWY_INLINE void finish(const Rows& /*rows*/, const float* q, const float* keys, float* tile) const {
    Accumulators acc;
    for (int64_t f = kFeatureChunk; f < features; f += kFeatureChunk) {
      multiply_features(D(), q, kRows, keys, f, features, acc);
      add_to(D(), acc, tile);
    }
  }
};

// A row's peaks and its columns of a tile.
HWY_INLINE void raise_peaks(D d, const Vec (&x)[kVecs], float* HWY_RESTRICT peaks) {
#pragma GCC unroll 2
  for (int64_t i = 0; i < kPeakVecs; ++i) {
    Vec peak = hn::Load(d, peaks + i * kLanes);
#pragma GCC unroll 4
    for (int64_t n = i; n < kVecs; n += kPeakVecs) peak = hn::Max(peak, x[n]);
    hn::Store(peak, d, peaks + i * kLanes);
  }
}

// Logits (in units of log2) of the live tiles and the running maxima of each row.
template <class Scores>
HWY_INLINE void score_panels(const Scores& scores, const LogitRule& rule, const Rows& rows, const Forward& p,
                             const Panels& panels, int64_t block, PanelRange range, const StripScratch& s) {
  const D d;
  for (int64_t panel = range.begin; panel < range.end; ++panel) {
    const int64_t key = block + panel * kCols;
    const float* keys = panels.keys + key * scores.features;
    int64_t t = 0;
    for (int64_t row = 0; row < rows.count; row += kRows, ++t) {
      const LiveTile live = s.live[t * s.live_stride + panel];
      if (live.begin == live.end) continue;
      float* tile = s.scores + t * s.score_stride + panel * kTile;
      float* peaks = s.peaks + t * kRows * kPeaks;
      const float* q = s.q + t * s.q_stride;
      Accumulators acc;
      const bool done = scores.multiply(rows, q, keys, acc);
      if (rule.plain && live.full && live.end - live.begin == kCols && done) {
        store(d, acc, tile);
#pragma GCC unroll 16
        for (int64_t r = 0; r < kRows; ++r) raise_peaks(d, acc.v[r], peaks + r * kPeaks);
      } else {
        store(d, acc, tile);
        if (!done) scores.finish(rows, q, keys, tile);
        const int64_t count = HWY_MIN(kRows, rows.count - row);
        uint64_t words[kRows];
        visible_words(p, rows.batch, rows.head, rows.begin + row, count, key, live, words);
        finish_logits(rule, p, rows.batch, rows.head, rows.begin + row, count, key, words, tile);
        for (int64_t r = 0; r < kRows; ++r) {
          Vec x[kVecs];
#pragma GCC unroll 4
          for (int64_t n = 0; n < kVecs; ++n) x[n] = hn::Load(d, tile + r * kCols + n * kLanes);
          raise_peaks(d, x, peaks + r * kPeaks);
        }
      }
    }
  }
}

// Folds the block's peaks into the rows' maxima and rescales what earlier blocks left.
HWY_INLINE void raise_maxima(int64_t tiles, int64_t out_features, const StripScratch& s,
                             const ObserveScratch* observed) {
  const D d;
  for (int64_t i = 0; i < tiles * kRows; ++i) {
    const float before = s.row_max[i];
    Vec peak = hn::Load(d, s.peaks + i * kPeaks);
    for (int64_t n = kLanes; n < kPeaks; n += kLanes)
      peak = hn::Max(peak, hn::Load(d, s.peaks + i * kPeaks + n));
    const float now = max_of_lanes(d, peak);
    const float after = now > before ? now : before;
    if (after == before) continue;
    s.row_max[i] = after;
    if (before == -HUGE_VALF) continue;  // nothing was summed yet
    const Vec factor = exp2(d, hn::Set(d, before - after));
    if (observed != nullptr) {
      float* entropy = observed->entropy + i * kLanes;
      float* distance = observed->distance + i * kLanes;
      const Vec shifted =
          hn::MulAdd(hn::Set(d, before - after), hn::Load(d, s.sums + i * kLanes), hn::Load(d, entropy));
      hn::Store(hn::Mul(shifted, factor), d, entropy);
      hn::Store(hn::Mul(hn::Load(d, distance), factor), d, distance);
    }
    hn::Store(hn::Mul(hn::Load(d, s.sums + i * kLanes), factor), d, s.sums + i * kLanes);
    float* out = s.out + i / kRows * s.out_stride + i % kRows * kCols;
    for (int64_t f = 0; f < out_features; f += kCols)
      for (int64_t n = 0; n < kCols; n += kLanes) {
        float* at = out + f * kRows + n;
        hn::Store(hn::Mul(hn::Load(d, at), factor), d, at);
      }
  }
}

// Logits become weights 2^(logit - maximum); the sums of their rows grow. With kObserve also the sums of
// weight * (logit - maximum) and, where wanted, of weight * distance; position: row + offset - key of the
// tile's first row and the block's first key.
template <bool kObserve>
HWY_INLINE void exponentials(int64_t tile_index, PanelRange range, const StripScratch& s,
                             const ObserveScratch* observed = nullptr, bool distances = false,
                             int64_t position = 0) {
  const D d;
  const LiveTile* live = s.live + tile_index * s.live_stride;
  const float* row_max = s.row_max + tile_index * kRows;
  float* sums = s.sums + tile_index * kRows * kLanes;
  float* tiles = s.scores + tile_index * s.score_stride;
  HWY_ALIGN float maxima[kRows];
  // A row whose logits are all -infinity keeps them: 2^-infinity is 0.
  for (int64_t r = 0; r < kRows; ++r) maxima[r] = row_max[r] == -HUGE_VALF ? 0.0F : row_max[r];
  for (int64_t panel = range.begin; panel < range.end; ++panel) {
    if (live[panel].begin == live[panel].end) continue;
    float* tile = tiles + panel * kTile;
    // Rows inside: a loop of constant length, whose end the processor predicts.
    constexpr int64_t kStep = kVecs == 2 ? 2 : 1;
    for (int64_t row = 0; row < kRows; row += kStep) {
      float* at = tile + row * kCols;
      Vec x[kStep * kVecs];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kStep * kVecs; ++i)
        x[i] = hn::Sub(hn::Load(d, at + i * kLanes), hn::Set(d, maxima[row + i / kVecs]));
      [[maybe_unused]] Vec below[kStep * kVecs];
      if constexpr (kObserve)
      // Where the weight is 0 anyway, -infinity must not meet it.
#pragma GCC unroll 16
        for (int64_t i = 0; i < kStep * kVecs; ++i) below[i] = hn::Max(hn::Set(d, -150.0F), x[i]);
      exp2(d, x);
      if constexpr (kObserve) {
#pragma GCC unroll 2
        for (int64_t r = 0; r < kStep; ++r) {
          float* entropy = observed->entropy + (tile_index * kRows + row + r) * kLanes;
          Vec sum = hn::Load(d, entropy);
#pragma GCC unroll 16
          for (int64_t n = 0; n < kVecs; ++n) sum = hn::MulAdd(x[r * kVecs + n], below[r * kVecs + n], sum);
          hn::Store(sum, d, entropy);
          if (!distances) continue;
          float* distance = observed->distance + (tile_index * kRows + row + r) * kLanes;
          for (int64_t n = 0; n < kVecs; ++n) {
            const auto first = static_cast<float>(position + row + r - panel * kCols - n * kLanes);
            const Vec away = hn::Abs(hn::Sub(hn::Set(d, first), hn::Iota(d, 0.0F)));
            hn::Store(hn::MulAdd(x[r * kVecs + n], away, hn::Load(d, distance)), d, distance);
          }
        }
      }
#pragma GCC unroll 2
      for (int64_t r = 0; r < kStep; ++r) {
        Vec part = x[r * kVecs];
#pragma GCC unroll 16
        for (int64_t n = 1; n < kVecs; ++n) part = hn::Add(part, x[r * kVecs + n]);
        float* sum = sums + (row + r) * kLanes;
        hn::Store(hn::Add(hn::Load(d, sum), part), d, sum);
      }
#pragma GCC unroll 16
      for (int64_t i = 0; i < kStep * kVecs; ++i) hn::Store(x[i], d, at + i * kLanes);
    }
  }
}

// Drops weights whose sums are already taken: lse and the row's sum know nothing of it.
inline HWY_NOINLINE void drop_weights(const Rows& rows, const Forward& p, int64_t tile_index, int64_t block,
                                      PanelRange range, const StripScratch& s) {
  const D d;
  constexpr int64_t kPanels = kKeyChunk / kCols;
  const int64_t row = rows.begin + tile_index * kRows;
  const int64_t count = HWY_MIN(kRows, rows.begin + rows.count - row);
  const LiveTile* live = s.live + tile_index * s.live_stride;
  const int64_t first = range.begin / kPanels * kPanels;  // of the chunk that the range lies in
  for (int64_t r = 0; r < count; ++r) {
    uint64_t words[kKeyChunk / 64];
    kept_words(p.dropout, rows.batch, rows.head, row + r, block + first * kCols, words);
    for (int64_t panel = range.begin; panel < range.end; ++panel) {
      if (live[panel].begin == live[panel].end) continue;
      const int64_t column = (panel - first) * kCols;
      float* weights = s.scores + tile_index * s.score_stride + panel * kTile + r * kCols;
      for (int64_t n = 0; n < kCols; n += kLanes)
        hn::Store(
            hn::IfThenElseZero(visible(d, words[column / 64] >> (column % 64 + n)), hn::Load(d, weights + n)),
            d, weights + n);
    }
  }
}

// out += weights times values, over one chunk of panels. first: out is not set yet.
HWY_INLINE void weigh_values(const Panels& panels, int64_t tile_index, int64_t block, PanelRange range,
                             int64_t out_features, bool first, const StripScratch& s) {
  const D d;
  const LiveTile* live = s.live + tile_index * s.live_stride;
  const float* weights = s.scores + tile_index * s.score_stride;
  for (int64_t f = 0; f < out_features; f += kCols) {
    const float* values = panels.values + f * panels.key_stride + block * kCols;
    float* out = s.out + tile_index * s.out_stride + f * kRows;
    Accumulators acc;
    zero(d, acc);
    for (int64_t panel = range.begin; panel < range.end; ++panel) {
      // Clipped to the keys that some row of the tile sees: the diagonal costs what lies under it.
      const LiveTile at = live[panel];
      const float* w = weights + panel * kTile;
      const float* v = values + panel * kCols * kCols;
      if (at.end - at.begin == kCols)
        multiply_add(d, w, v, kCols, acc);
      else
        multiply_add(d, w + at.begin, v + at.begin * kCols, at.end - at.begin, acc);
    }
    if (first)
      store(d, acc, out);
    else
      add_to(d, acc, out);
  }
}

// Packing replaced non-finite values by 0. The rows that see such a key get their share of it now; rows that
// do not see it never touch it.
inline HWY_NOINLINE void restore_nonfinite(const Rows& rows, const Forward& p, const Panels& panels,
                                           int64_t tile_index, int64_t block, PanelRange range,
                                           const StripScratch& s) {
  const int64_t row = rows.begin + tile_index * kRows;
  const int64_t count = HWY_MIN(kRows, rows.begin + rows.count - row);
  for (int64_t panel = range.begin; panel < range.end; ++panel) {
    const LiveTile live = s.live[tile_index * s.live_stride + panel];
    for (int64_t c = live.begin; c < live.end; ++c) {
      const int64_t key = block + panel * kCols + c;
      if ((panels.nonfinite[key / 64] >> (key % 64) & 1) == 0) continue;
      for (int64_t r = 0; r < count; ++r) {
        if (!sees(p, rows.batch, rows.head, row + r, key)) continue;
        const float weight = s.scores[tile_index * s.score_stride + panel * kTile + r * kCols + c];
        for (int64_t f = 0; f < p.v.size[3]; ++f) {
          const float value = value_element(p, rows.batch, rows.head / (p.q.size[1] / p.k.size[1]), key, f);
          if (value - value == 0.0F) continue;
          s.out[tile_index * s.out_stride + f / kCols * kTile + r * kCols + f % kCols] += weight * value;
        }
      }
    }
  }
}

HWY_INLINE StripScores scores_of(const StripScratch& s) {
  return {s.scores, s.score_stride, s.live, s.live_stride};
}

// What turns the weights of a block into shares of their rows: they are relative to what the maximum was
// then.
HWY_INLINE void block_shares(int64_t rows, const StripScratch& s, const ObserveScratch& observed,
                             float* shares) {
  const D d;
  for (int64_t r = 0; r < rows; r += kLanes) {
    const Vec then = hn::Load(d, s.block_max + r);
    const Vec now = hn::Load(d, s.row_max + r);
    const Vec factor = hn::IfThenElse(hn::Eq(then, now), hn::Set(d, 1.0F), exp2(d, hn::Sub(then, now)));
    hn::Store(hn::Mul(hn::Load(d, observed.share + r), factor), d, shares + r);
  }
}

// Shows the strip's weights to observe_weights(): they were kept, or dropout has changed them and they are
// made again.
template <class Scores>
HWY_NOINLINE void observe_strip(const Scores& scores, const Forward& p, const LogitRule& rule,
                                const PrefillLayout& layout, const Rows& rows, const Panels& panels,
                                const StripScratch& all, const ObserveScratch& observed) {
  const int64_t keys = p.k.size[2];
  for (int64_t block = 0; block < keys; block += layout.block_keys) {
    const StripScratch s = all.of_block(layout, block);
    if (!p.dropout) {
      if (s.range->begin >= s.range->end) continue;
      ObserveScratch mine = observed;
      if (layout.kept_blocks > 1) {
        mine.share = observed.block_share;
        block_shares(rows.count, s, observed, mine.share);
      }
      observe_weights(p.observe, scores_of(s), rows, block, *s.range, keys, mine);
      continue;
    }
    const PanelRange range = find_live(rows, p, block, HWY_MIN(block + layout.block_keys, keys), s);
    if (range.begin >= range.end) continue;
    score_panels(scores, rule, rows, p, panels, block, range, s);
    for (int64_t t = 0; t * kRows < rows.count; ++t) exponentials<false>(t, range, s);
    observe_weights(p.observe, scores_of(s), rows, block, range, keys, observed);
  }
}

// What turns a row's number into its position among the keys, for distances.
inline int64_t distance_offset(const Forward& p, int64_t batch) {
  const int64_t offset = p.observe.distance_offset;
  return p.pages ? p.pages.end(batch) - p.q.size[2] + offset : offset;
}

// Computes rows [rows.begin, rows.begin + rows.count) of out and lse. A row's arithmetic depends on nothing
// but its own q, the keys and values, and where blocks of keys begin: bits do not change with the strip
// around it.
template <class Scores>
void run_strip(const Scores& scores, const Forward& p, const LogitRule& rule, const PrefillLayout& layout,
               const Rows& rows, const Panels& panels, const StripScratch& all,
               const ObserveScratch* observed) {
  const StripScratch& s = all;  // what is the strip's, not a block's
  const int64_t tiles = (rows.count + kRows - 1) / kRows;
  const int64_t out_features = p.out ? p.v.size[3] : 0;
  const int64_t key_count = p.k.size[2];
  if (observed != nullptr) begin_observing(*observed, tiles * kRows);

  scores.load_queries(p, rule, rows, s);
  for (int64_t i = 0; i < tiles * kRows * kLanes; ++i) s.sums[i] = 0.0F;
  for (int64_t i = 0; i < tiles * kRows; ++i) s.row_max[i] = -HUGE_VALF;

  bool first = true;
  for (int64_t block = 0; block < key_count; block += layout.block_keys) {
    const int64_t end = HWY_MIN(block + layout.block_keys, key_count);
    const StripScratch s = all.of_block(layout, block);
    const PanelRange range = *s.range = find_live(rows, p, block, end, s);
    if (range.begin >= range.end) continue;
    for (int64_t i = 0; i < tiles * kRows * kPeaks; ++i) s.peaks[i] = -HUGE_VALF;
    score_panels(scores, rule, rows, p, panels, block, range, s);
    if (p.observe.wants_top())
      collect_top(p.observe, scores_of(s), rows.count, block, range, s.peaks, *observed);
    raise_maxima(tiles, out_features, s, observed);
    if (layout.kept_blocks > 1)
      for (int64_t i = 0; i < tiles * kRows; ++i) s.block_max[i] = s.row_max[i];
    constexpr int64_t kChunkPanels = kKeyChunk / kCols;
    for (int64_t begin = range.begin; begin < range.end;) {
      const PanelRange chunk{begin, HWY_MIN((begin / kChunkPanels + 1) * kChunkPanels, range.end)};
      const bool restore = any_flag(panels.nonfinite, block + chunk.begin * kCols,
                                    HWY_MIN(block + chunk.end * kCols, key_count));
      for (int64_t t = 0; t < tiles; ++t) {
        if (observed == nullptr)
          exponentials<false>(t, chunk, s);
        else
          exponentials<true>(t, chunk, s, observed, static_cast<bool>(p.observe.distance),
                             rows.begin + t * kRows + distance_offset(p, rows.batch) - block);
        if (out_features == 0) continue;
        if (p.dropout) drop_weights(rows, p, t, block, chunk, s);
        weigh_values(panels, t, block, chunk, out_features, first, s);
        if (HWY_UNLIKELY(restore)) restore_nonfinite(rows, p, panels, t, block, chunk, s);
      }
      begin = chunk.end;
      first = false;
    }
  }

  float* sums = s.peaks;  // of rows that are done
  float* factors = s.peaks + layout.row_floats;
  close_rows(p, rows, s.row_max, s.sums, sums, factors);
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t row = rows.begin + r;
    float factor = factors[r];
    if (observed != nullptr) close_observed_row(p, rows, r, s.row_max[r], sums[r], factor, *observed);
    if (p.dropout) factor *= p.dropout.scale();
    float* out = s.out + r / kRows * s.out_stride + r % kRows * kCols;
    store_out<kCols>(p.out, rows.batch, rows.head, row, factor, out, kTile);
  }
  if (p.observe.wants_weights()) observe_strip(scores, p, rule, layout, rows, panels, s, *observed);
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
