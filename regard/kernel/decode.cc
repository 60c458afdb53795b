#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/decode.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/decode_split-inl.h"
#include "regard/kernel/kernels.h"
#include "regard/kernel/merge.h"
#include "regard/kernel/pack-inl.h"
#include "regard/kernel/rows.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Writes a finished row.
HWY_INLINE void close(const Forward& p, int64_t batch, int64_t head, int64_t query, float maximum, float sum,
                      const float* out) {
  const float factor = close_row(p, batch, head, query, maximum, sum);
  store_out<kLanes>(p.out, batch, head, query, factor, out, kLanes);
}

// The splits of an entry that have keys; an entry without keys has one all the same.
struct Splits {
  int64_t begin, end;

  Splits(const Forward& p, const DecodeLayout& layout, int64_t batch)
      : begin(HWY_MIN(first_key(p, batch) / layout.split_keys, layout.splits - 1)),
        end(HWY_MAX((end_key(p, batch) + layout.split_keys - 1) / layout.split_keys, begin + 1)) {}
};

// Merges the parts of a row in the order of the splits, into the first one's place, and writes it.
HWY_INLINE void merge(const Forward& p, const DecodeLayout& layout, int64_t row, float* partials) {
  const int64_t heads = p.q.size[1];
  const int64_t queries = p.q.size[2];
  const int64_t batch = row / (heads * queries);
  const int64_t partial_floats = layout.partial_floats();
  const Splits splits(p, layout, batch);
  float* parts = partials + row * layout.splits * partial_floats;
  float* total = parts + splits.begin * partial_floats + kMaxLanes;
  const auto part = [&](int64_t i) {
    const float* at = parts + i * partial_floats;
    return PartialRow{static_cast<double>(at[0]) * kLn2, at[1], at + kMaxLanes};
  };
  const MergedRow merged = merge_row(splits.begin, splits.end, part, p.v.size[3], total);
  close(p, batch, row / queries % heads, row % queries, static_cast<float>(merged.maximum / kLn2),
        static_cast<float>(merged.sum), total);
}

template <class T>
void run_decode(const Forward& p, const ForwardTiling& tiling, std::byte* workspace, Parallel& parallel) {
  const DecodeLayout layout(p, tiling);
  const Decoder<T> decoder(p, layout);
  const int64_t kv_heads = p.k.size[1];
  const int64_t partial_floats = layout.partial_floats();
  float* partials = reinterpret_cast<float*>(workspace);
  std::byte* scratch = workspace + static_cast<size_t>(layout.partials * partial_floats * 4);

  parallel.run(p.k.size[0] * kv_heads * layout.splits, [&](int64_t task, int worker) HWY_ATTR {
    const D d;
    const int64_t split = task % layout.splits;
    const int64_t batch = task / layout.splits / kv_heads;
    const int64_t kv_head = task / layout.splits % kv_heads;
    const Splits splits(p, layout, batch);
    if (split < splits.begin || split >= splits.end) return;
    const DecodeScratch s(layout, scratch + static_cast<size_t>(worker) * layout.worker_bytes());
    const int64_t begin = split * layout.split_keys;
    decoder.run_split(batch, kv_head, begin, HWY_MIN(begin + layout.split_keys, end_key(p, batch)), s);
    for (int64_t r = 0; r < layout.rows; ++r) {
      const float sum = sum_of_lanes(d, hn::Load(d, s.sums + r * kLanes));
      const float* out = s.out + r * layout.out_stride;
      const int64_t head = decoder.head(kv_head, r);
      const int64_t query = decoder.query(r);
      if (layout.splits == 1) {
        close(p, batch, head, query, s.row_max[r], sum, out);
        continue;
      }
      const int64_t row = (batch * p.q.size[1] + head) * p.q.size[2] + query;
      float* to = partials + (row * layout.splits + split) * partial_floats;
      to[0] = s.row_max[r];
      to[1] = sum;
      for (int64_t f = 0; f < p.v.size[3]; f += kLanes)
        hn::Store(hn::Load(d, out + f), d, to + kMaxLanes + f);
    }
  });
  if (layout.splits == 1) return;
  const int64_t rows = p.q.size[0] * p.q.size[1] * p.q.size[2];
  constexpr int64_t kFew = 64;  // too little work to share out
  Serial alone;
  Parallel& merging = rows <= kFew ? static_cast<Parallel&>(alone) : parallel;
  merging.run(rows, [&](int64_t row, int) HWY_ATTR { merge(p, layout, row, partials); });
}

void Decode(const Forward& p, const ForwardTiling& tiling, std::byte* workspace, Parallel& parallel) {
  CacheType type = p.pages.type;
  if (!p.pages)
    type = p.k.dtype == DType::f32    ? CacheType::f32
           : p.k.dtype == DType::bf16 ? CacheType::bf16
                                      : CacheType::f16;
  with_type(type,
            [&](auto element) HWY_ATTR { run_decode<decltype(element)>(p, tiling, workspace, parallel); });
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "regard/kernel/dispatch.h"

namespace regard::kernel {

HWY_EXPORT(Decode);

void decode(const Forward& problem, const ForwardTiling& tiling, std::byte* workspace, Parallel& parallel) {
  REGARD_DISPATCH(Decode)(problem, tiling, workspace, parallel);
}

}  // namespace regard::kernel

#endif  // HWY_ONCE
