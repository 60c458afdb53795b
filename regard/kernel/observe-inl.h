// What a strip tells about its weights while they are at hand. Nothing here changes the strip's result.
#if defined(REGARD_KERNEL_OBSERVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_OBSERVE_INL_H_
#undef REGARD_KERNEL_OBSERVE_INL_H_
#else
#define REGARD_KERNEL_OBSERVE_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "regard/kernel/prefill_layout.h"
#include "regard/kernel/rows.h"
#include "regard/kernel/simd-inl.h"
#include "regard/kernel/top_keys.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Maxima that a row keeps of a block, each of logits of its own: two vectors bound the eighth best of a row
// almost as well as it can be known beforehand.
constexpr int64_t kPeakVecs = 2;
constexpr int64_t kPeaks = kPeakVecs * kLanes;

// Per row of a strip.
struct ObserveScratch {
  float* entropy;         // [rows][kLanes] sum of weight * (logit - maximum), unnormalised
  float* distance;        // [rows][kLanes] sum of weight * distance, unnormalised
  float* share;           // [rows] what turns a weight of the strip into its share of the row
  float* block_share;     // [rows] the same for one block of several
  float* threshold;       // [rows] logits at or below it are not among the best
  int64_t* counts;        // [rows] candidates so far
  Candidate* candidates;  // [rows][capacity]
  int32_t* hits;          // [panels of a block] of one row: those with a candidate
  float* columns;         // [Lk] of the segment; nullptr: not wanted

  ObserveScratch(const PrefillLayout& layout, std::byte* at) {
    Carver carve(at);
    entropy = carve.take<float>(layout.row_floats);
    distance = carve.take<float>(layout.row_floats);
    share = carve.take<float>(layout.row_floats);
    block_share = carve.take<float>(layout.row_floats);
    threshold = carve.take<float>(layout.row_floats);
    counts = carve.take<int64_t>(layout.row_floats);
    candidates = carve.take<Candidate>(layout.strip_rows * layout.candidates);
    hits = carve.take<int32_t>(layout.hit_bytes / static_cast<int64_t>(sizeof(int32_t)));
    columns = nullptr;
  }
};

// The strip's scores as everyone here reads them: row r's panel of kCols keys.
struct StripScores {
  const float* data;  // [tiles][panels of a block][kRows][kCols]
  int64_t tile_stride;
  const LiveTile* live;  // [tiles][panels of a block]
  int64_t live_stride;

  const float* row(int64_t r, int64_t panel) const {
    return data + r / kRows * tile_stride + panel * kTile + r % kRows * kCols;
  }
  bool is_live(int64_t r, int64_t panel) const {
    const LiveTile tile = live[r / kRows * live_stride + panel];
    return tile.begin != tile.end;
  }
};

HWY_INLINE void begin_observing(const ObserveScratch& o, int64_t rows) {
  for (int64_t i = 0; i < rows * kLanes; ++i) o.entropy[i] = o.distance[i] = 0.0F;
  for (int64_t r = 0; r < rows; ++r) {
    o.threshold[r] = -HUGE_VALF;
    o.counts[r] = 0;
  }
}

// The k-th largest of a row's kPeaks maxima: the smallest of those that fewer than k exceed.
HWY_INLINE float kth_peak(const float* HWY_RESTRICT peaks, int64_t k) {
  const D d;
  const Vec enough = hn::Set(d, static_cast<float>(k));
  Vec lowest = hn::Set(d, HUGE_VALF);
  for (int64_t n = 0; n < kPeaks; n += kLanes) {
    const Vec mine = hn::Load(d, peaks + n);
    Vec larger = hn::Zero(d);
    for (int64_t i = 0; i < kPeaks; ++i)
      larger = hn::Add(larger, hn::IfThenElseZero(hn::Gt(hn::Set(d, peaks[i]), mine), hn::Set(d, 1.0F)));
    lowest = hn::Min(lowest, hn::IfThenElse(hn::Lt(larger, enough), mine, lowest));
  }
  return hn::GetLane(hn::MinOfLanes(d, lowest));
}

// Bit n: element n of a row's panel is above the threshold.
HWY_INLINE uint64_t bits_above(const float* HWY_RESTRICT logits, float threshold) {
  const D d;
  uint64_t bits = 0;
  for (int64_t n = 0; n < kCols; n += kLanes) {
    uint64_t above = 0;
    hn::StoreMaskBits(d, hn::Gt(hn::Load(d, logits + n), hn::Set(d, threshold)),
                      reinterpret_cast<uint8_t*>(&above));
    bits |= above << n;
  }
  return bits;
}

// The panels where a row has a logit above the threshold, without a branch that a processor has to guess.
HWY_INLINE int64_t find_hits(const StripScores& scores, int64_t r, PanelRange range, float threshold,
                             int32_t* HWY_RESTRICT hits) {
  const D d;
  const Vec bound = hn::Set(d, threshold);
  int64_t count = 0;
  for (int64_t panel = range.begin; panel < range.end; ++panel) {
    if (!scores.is_live(r, panel)) continue;
    const float* logits = scores.row(r, panel);
    auto above = hn::Gt(hn::Load(d, logits), bound);
    for (int64_t n = kLanes; n < kCols; n += kLanes)
      above = hn::Or(above, hn::Gt(hn::Load(d, logits + n), bound));
    hits[count] = static_cast<int32_t>(panel);
    count += hn::AllFalse(d, above) ? 0 : 1;
  }
  return count;
}

// Collects the candidates of a block from its raw logits. peaks: [rows][kPeaks] of this block.
inline HWY_NOINLINE void collect_top(const Observation& observe, const StripScores& scores, int64_t rows,
                                     int64_t block, PanelRange range, const float* peaks,
                                     const ObserveScratch& o) {
  const int64_t k = observe.top_keys.size[3];
  const int64_t capacity = candidate_capacity(k);
  for (int64_t r = 0; r < rows; ++r) {
    float threshold = o.threshold[r];
    // Each peak is a logit of its own: the k-th largest of them is a lower bound for the k-th best.
    if (k <= kPeaks) {
      const float peak = kth_peak(peaks + r * kPeaks, k);
      const float below = peak - HWY_MAX(std::abs(peak) * 0x1p-22F, 0x1p-126F);
      if (below > threshold) threshold = below;
    }
    Candidate* candidates = o.candidates + r * capacity;
    int64_t count = o.counts[r];
    const int64_t hits = find_hits(scores, r, range, threshold, o.hits);
    for (int64_t h = 0; h < hits; ++h) {
      const int64_t panel = o.hits[h];
      const float* logits = scores.row(r, panel);
      for (uint64_t above = bits_above(logits, threshold); above != 0; above &= above - 1) {
        const int64_t c = __builtin_ctzll(above);
        if (!(logits[c] > threshold)) continue;  // it may have risen
        candidates[count++] = {logits[c], block + panel * kCols + c};
        if (count == capacity) threshold = keep_best(candidates, count, k);
      }
    }
    o.counts[r] = count;
    o.threshold[r] = threshold;
  }
}

// maximum, factor: what turns a logit into its weight, as for all weights of the row.
inline HWY_NOINLINE void write_top(const Observation& observe, const Rows& rows, float maximum, float factor,
                                   int64_t r, const ObserveScratch& o) {
  const D d;
  const int64_t k = observe.top_keys.size[3];
  const int64_t row = rows.begin + r;
  Candidate* candidates = o.candidates + r * candidate_capacity(k);
  const int64_t found = sort_best(candidates, o.counts[r], k);
  HWY_ALIGN float weights[kLanes];
  for (int64_t n = 0; n < k; ++n) {
    const int64_t lane = n % kLanes;
    if (lane == 0) {
      for (int64_t i = 0; i < kLanes; ++i)
        weights[i] = n + i < found ? candidates[n + i].logit - maximum : -HUGE_VALF;
      hn::Store(hn::Mul(exp2(d, hn::Load(d, weights)), hn::Set(d, factor)), d, weights);
    }
    observe.top_keys(rows.batch, rows.head, row, n) = n < found ? candidates[n].key : -1;
    observe.top_weights(rows.batch, rows.head, row, n) = n < found ? weights[lane] : 0.0F;
  }
}

// columns += share of each row times its weights, over one stored tile.
HWY_INLINE void add_columns_of_tile(const float* HWY_RESTRICT tile, const float* HWY_RESTRICT share,
                                    int64_t count, bool finite, float* HWY_RESTRICT columns) {
  const D d;
  for (int64_t n = 0; n < kCols; n += kLanes) {
    Vec sum = hn::Load(d, columns + n);
    for (int64_t r = 0; r < count; ++r) {
      const Vec weight = hn::Load(d, tile + r * kCols + n);
      const Vec x = hn::Set(d, share[r]);
      // Selected where a row's share is NaN: it stays out of the keys that the row does not see.
      sum = HWY_LIKELY(finite)
                ? hn::MulAdd(weight, x, sum)
                : hn::Add(sum, hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), hn::Mul(weight, x)));
    }
    hn::Store(sum, d, columns + n);
  }
}

// Column sums, block maps and whole rows of a block whose scores are weights relative to the final maximum.
inline HWY_NOINLINE void observe_weights(const Observation& observe, const StripScores& scores,
                                         const Rows& rows, int64_t block, PanelRange range, int64_t keys,
                                         const ObserveScratch& o) {
  const D d;
  if (o.columns != nullptr) {
    for (int64_t first = 0; first < rows.count; first += kRows) {
      const int64_t count = HWY_MIN(kRows, rows.count - first);
      bool finite = true;
      for (int64_t r = first; r < first + count; ++r) finite = finite && o.share[r] - o.share[r] == 0.0F;
      for (int64_t panel = range.begin; panel < range.end; ++panel) {
        if (!scores.is_live(first, panel)) continue;
        add_columns_of_tile(scores.row(first, panel), o.share + first, count, finite,
                            o.columns + block + panel * kCols);
      }
    }
  }
  HWY_ALIGN float weights[kCols];
  const int64_t* selected = observe.rows;
  const int64_t* selected_end = observe.rows + observe.row_count;
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t row = rows.begin + r;
    const int64_t* found = observe.row_weights ? std::lower_bound(selected, selected_end, row) : selected_end;
    const bool whole = found != selected_end && *found == row;
    if (!observe.block_mean && !whole) continue;
    const Vec share = hn::Set(d, o.share[r]);
    const int64_t block_row = observe.block_mean ? row / observe.block_rows : 0;
    for (int64_t panel = range.begin; panel < range.end; ++panel) {
      if (!scores.is_live(r, panel)) continue;
      const float* from = scores.row(r, panel);
      for (int64_t n = 0; n < kCols; n += kLanes) {
        const Vec weight = hn::Load(d, from + n);
        hn::Store(hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)), hn::Mul(weight, share)), d, weights + n);
      }
      const int64_t key = block + panel * kCols;
      const int64_t columns = HWY_MIN(kCols, keys - key);
      if (whole)
        for (int64_t c = 0; c < columns; ++c)
          observe.row_weights(rows.batch, rows.head, found - observe.rows, key + c) = weights[c];
      if (!observe.block_mean) continue;
      for (int64_t c = 0; c < columns;) {
        const int64_t block_key = (key + c) / observe.block_keys;
        const int64_t end = HWY_MIN(columns, (block_key + 1) * observe.block_keys - key);
        float sum = 0.0F;
        float top = 0.0F;
        if (end - c == kCols) {
          Vec sums = hn::Load(d, weights);
          Vec tops = sums;
          for (int64_t n = kLanes; n < kCols; n += kLanes) {
            sums = hn::Add(sums, hn::Load(d, weights + n));
            tops = hn::Max(tops, hn::Load(d, weights + n));
          }
          sum = sum_of_lanes(d, sums);
          top = max_of_lanes(d, tops);
        } else {
          for (int64_t i = c; i < end; ++i) {
            sum += weights[i];
            top = HWY_MAX(top, weights[i]);
          }
        }
        observe.block_mean(rows.batch, rows.head, block_row, block_key) += sum;
        float& highest = observe.block_max(rows.batch, rows.head, block_row, block_key);
        highest = HWY_MAX(highest, top);
        c = end;
      }
    }
  }
}

// Ends a row: what its sums say. maximum in units of log2; sum: of weights; factor: close_row()'s.
HWY_INLINE void close_observed_row(const Forward& p, const Rows& rows, int64_t r, float maximum, float sum,
                                   float factor, const ObserveScratch& o) {
  const D d;
  const Observation& observe = p.observe;
  const int64_t row = rows.begin + r;
  o.share[r] = factor;
  if (observe.row_max)
    observe.row_max(rows.batch, rows.head, row, 0) = static_cast<float>(static_cast<double>(maximum) * kLn2);
  if (observe.entropy) {
    const double weighted = sum_of_lanes(d, hn::Load(d, o.entropy + r * kLanes));
    const double entropy =
        factor == 0.0F
            ? 0.0
            : static_cast<double>(factor) *
                  (static_cast<double>(sum) * -std::log(static_cast<double>(factor)) - kLn2 * weighted);
    observe.entropy(rows.batch, rows.head, row, 0) = static_cast<float>(entropy <= 0.0 ? 0.0 : entropy);
  }
  if (observe.distance)
    observe.distance(rows.batch, rows.head, row, 0) =
        factor == 0.0F ? 0.0F : factor * sum_of_lanes(d, hn::Load(d, o.distance + r * kLanes));
  if (observe.wants_top()) write_top(observe, rows, maximum, factor, r, o);
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
