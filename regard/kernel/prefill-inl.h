// Attention of many query rows: keys and values of a head are packed into panels, strips of rows share them.
#if defined(REGARD_KERNEL_PREFILL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_PREFILL_INL_H_
#undef REGARD_KERNEL_PREFILL_INL_H_
#else
#define REGARD_KERNEL_PREFILL_INL_H_
#endif

#include <cstring>

#include "regard/kernel/strip-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Rows of a task: enough to outweigh its start, few enough to share out among threads.
constexpr int64_t kTaskRows = 48;
constexpr int64_t kPackKeys = 256;  // keys of a packing task

// What the rows [first, last) of a head add to starts at 0.
inline void begin_segment(const Forward& p, const PrefillLayout& layout, int64_t batch, int64_t head,
                          int64_t first, int64_t last, const ObserveScratch& observed) {
  const Observation& observe = p.observe;
  if (observe.column_sums) std::memset(observed.columns, 0, static_cast<size_t>(layout.keys) * sizeof(float));
  if (observe.block_mean)
    for (int64_t i = first / observe.block_rows; i * observe.block_rows < last; ++i)
      for (int64_t j = 0; j < observe.block_mean.size[3]; ++j)
        observe.block_mean(batch, head, i, j) = observe.block_max(batch, head, i, j) = 0.0F;
  for (int64_t n = 0; n < observe.row_count; ++n)
    if (observe.rows[n] >= first && observe.rows[n] < last)
      for (int64_t j = 0; j < p.k.size[2]; ++j) observe.row_weights(batch, head, n, j) = 0.0F;
}

// Sums of blocks become means.
inline void end_segment(const Forward& p, int64_t batch, int64_t head, int64_t first, int64_t last) {
  const Observation& observe = p.observe;
  if (!observe.block_mean) return;
  for (int64_t i = first / observe.block_rows; i * observe.block_rows < last; ++i)
    for (int64_t j = 0; j < observe.block_mean.size[3]; ++j) {
      const int64_t height = HWY_MIN(observe.block_rows, p.q.size[2] - i * observe.block_rows);
      const int64_t width = HWY_MIN(observe.block_keys, p.k.size[2] - j * observe.block_keys);
      observe.block_mean(batch, head, i, j) /= static_cast<float>(height * width);
    }
}

// The column sums of a head: of its segments, in their order.
inline void add_columns(const Forward& p, const PrefillLayout& layout, const float* columns,
                        Parallel& parallel) {
  if (!p.observe.column_sums) return;
  parallel.run(p.q.size[0] * p.q.size[1], [&](int64_t head, int /*worker*/) {
    for (int64_t j = 0; j < p.k.size[2]; ++j) {
      float sum = 0.0F;
      for (int64_t n = 0; n < layout.segments; ++n)
        sum += columns[(head * layout.segments + n) * layout.keys + j];
      p.observe.column_sums(head / p.q.size[1], head % p.q.size[1], j, 0) = sum;
    }
  });
}

// scores: how q and k become products, see strip-inl.h; it also packs. layout: of this call's workspace.
template <class Scores>
void run_prefill(const Forward& p, const PrefillLayout& layout, const Scores& scores,
                 const ForwardTiling& tiling, std::byte* workspace, Parallel& parallel) {
  const LogitRule rule(p);
  const int64_t kv_heads = p.k.size[1];
  const int64_t group = kv_heads > 0 ? p.q.size[1] / kv_heads : 0;
  const int64_t rows = p.q.size[2];
  const int64_t keys = p.k.size[2];
  const int64_t strip = HWY_MAX((tiling.query_rows + kRows - 1) / kRows, int64_t{1}) * kRows;
  const int64_t heads = p.k.size[0] * kv_heads;

  auto* columns = reinterpret_cast<float*>(workspace);  // [head][segment][keys]
  std::byte* packed = workspace + static_cast<size_t>(layout.column_floats) * 4;
  std::byte* scratch = packed + static_cast<size_t>(layout.heads_packed) * layout.head_bytes();
  const auto panels_of = [&](int64_t slot) HWY_ATTR {
    return Panels(layout, packed + static_cast<size_t>(slot) * layout.head_bytes());
  };
  const auto scratch_of = [&](int worker) HWY_ATTR {
    return StripScratch(layout, scores.features, p.v.size[3],
                        scratch + static_cast<size_t>(worker) * layout.worker_bytes());
  };
  const auto run_rows = [&](int64_t batch, int64_t head, int64_t begin, int64_t end, const Panels& panels,
                            int worker) HWY_ATTR {
    const StripScratch s = scratch_of(worker);
    if (!p.observe.any()) {
      for (int64_t row = begin; row < end; row += strip)
        run_strip(scores, p, rule, layout, {batch, head, row, HWY_MIN(strip, end - row)}, panels, s, nullptr);
      return;
    }
    ObserveScratch observed(layout, s.end);
    for (int64_t first = begin; first < end; first += layout.segment_rows) {
      const int64_t last = HWY_MIN(first + layout.segment_rows, end);
      if (p.observe.column_sums) {
        const int64_t segment = (batch * p.q.size[1] + head) * layout.segments + first / layout.segment_rows;
        observed.columns = columns + segment * layout.keys;
      }
      begin_segment(p, layout, batch, head, first, last, observed);
      for (int64_t row = first; row < last; row += strip)
        run_strip(scores, p, rule, layout, {batch, head, row, HWY_MIN(strip, last - row)}, panels, s,
                  &observed);
      end_segment(p, batch, head, first, last);
    }
  };

  if (!layout.shared) {
    parallel.run(heads, [&](int64_t task, int worker) HWY_ATTR {
      const int64_t batch = task / kv_heads;
      const int64_t head = task % kv_heads;
      const Panels panels = panels_of(worker);
      scores.pack(p, batch, head, 0, keys, panels, scratch_of(worker).staging);
      for (int64_t h = head * group; h < (head + 1) * group; ++h) run_rows(batch, h, 0, rows, panels, worker);
    });
    return add_columns(p, layout, columns, parallel);
  }
  const int64_t pieces = (keys + kPackKeys - 1) / kPackKeys;
  parallel.run(heads * pieces, [&](int64_t task, int worker) HWY_ATTR {
    const int64_t slot = task / pieces;
    const int64_t begin = task % pieces * kPackKeys;
    scores.pack(p, slot / kv_heads, slot % kv_heads, begin, HWY_MIN(begin + kPackKeys, keys), panels_of(slot),
                scratch_of(worker).staging);
  });
  const int64_t task_rows =
      layout.segments > 0 ? layout.segment_rows : (kTaskRows + strip - 1) / strip * strip;
  const int64_t row_tasks = (rows + task_rows - 1) / task_rows;
  parallel.run(heads * group * row_tasks, [&](int64_t task, int worker) HWY_ATTR {
    const int64_t head = task / row_tasks;  // of all batches
    const int64_t begin = task % row_tasks * task_rows;
    run_rows(head / (kv_heads * group), head % (kv_heads * group), begin, HWY_MIN(begin + task_rows, rows),
             panels_of(head / group), worker);
  });
  add_columns(p, layout, columns, parallel);
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
