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

// Per row of a strip.
struct ObserveScratch {
  float* entropy;         // [rows][kLanes] sum of weight * (logit - maximum), unnormalised
  float* distance;        // [rows][kLanes] sum of weight * distance, unnormalised
  float* share;           // [rows] what turns a weight of the strip into its share of the row
  float* block_share;     // [rows] the same for one block of several
  float* threshold;       // [rows] logits at or below it are not among the best
  int64_t* counts;        // [rows] candidates so far
  Candidate* candidates;  // [rows][capacity]
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

// Collects the candidates of a block from its raw logits. maxima: [rows][kLanes] of this block.
inline HWY_NOINLINE void collect_top(const Observation& observe, const StripScores& scores, int64_t rows,
                                     int64_t block, PanelRange range, const float* maxima,
                                     const ObserveScratch& o) {
  const D d;
  const int64_t k = observe.top_keys.size[3];
  const int64_t capacity = candidate_capacity(k);
  HWY_ALIGN float lanes[kLanes];
  for (int64_t r = 0; r < rows; ++r) {
    float threshold = o.threshold[r];
    // Each lane's maximum is a logit of its own: the k-th largest of them is a lower bound for the k-th best.
    if (k <= kLanes) {
      hn::Store(hn::Load(d, maxima + r * kLanes), d, lanes);
      std::nth_element(lanes, lanes + (k - 1), lanes + kLanes, [](float a, float b) { return a > b; });
      const float bound = std::nextafter(lanes[k - 1], -HUGE_VALF);
      if (bound > threshold) threshold = bound;
    }
    Candidate* candidates = o.candidates + r * capacity;
    int64_t count = o.counts[r];
    for (int64_t panel = range.begin; panel < range.end; ++panel) {
      if (!scores.is_live(r, panel)) continue;
      const float* logits = scores.row(r, panel);
      for (int64_t n = 0; n < kCols; n += kLanes) {
        uint64_t above = 0;
        hn::StoreMaskBits(d, hn::Gt(hn::Load(d, logits + n), hn::Set(d, threshold)),
                          reinterpret_cast<uint8_t*>(&above));
        for (; HWY_UNLIKELY(above != 0); above &= above - 1) {
          const int64_t c = n + __builtin_ctzll(above);
          if (!(logits[c] > threshold)) continue;  // it may have risen
          candidates[count++] = {logits[c], block + panel * kCols + c};
          if (count == capacity) threshold = keep_best(candidates, count, k);
        }
      }
    }
    o.counts[r] = count;
    o.threshold[r] = threshold;
  }
}

inline void write_top(const Observation& observe, const Rows& rows, double lse, int64_t r,
                      const ObserveScratch& o) {
  const int64_t k = observe.top_keys.size[3];
  const int64_t row = rows.begin + r;
  Candidate* candidates = o.candidates + r * candidate_capacity(k);
  const int64_t found = sort_best(candidates, o.counts[r], k);
  for (int64_t n = 0; n < k; ++n) {
    const bool there = n < found;
    observe.top_keys(rows.batch, rows.head, row, n) = there ? candidates[n].key : -1;
    observe.top_weights(rows.batch, rows.head, row, n) =
        there ? static_cast<float>(std::exp(static_cast<double>(candidates[n].logit) * kLn2 - lse)) : 0.0F;
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
  const double top = static_cast<double>(maximum) * kLn2;
  // Of the keys and the sink: factor = exp(top - lse).
  const double lse = factor == 0.0F ? -HUGE_VAL : top - std::log(static_cast<double>(factor));
  if (observe.row_max) observe.row_max(rows.batch, rows.head, row, 0) = static_cast<float>(top);
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
  if (observe.wants_top()) write_top(observe, rows, lse, r, o);
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
