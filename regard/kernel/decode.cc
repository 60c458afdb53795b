#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/decode.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/decode-inl.h"
#include "regard/kernel/decode_layout.h"
#include "regard/kernel/kernels.h"
#include "regard/kernel/logits-inl.h"
#include "regard/kernel/pack-inl.h"
#include "regard/kernel/rows.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Keys whose values are weighed before the accumulators go back to memory: their V fits in the L1 cache.
constexpr int64_t kWeighKeys = 32;

template <int kValue>
struct Int {
  static constexpr int value = kValue;
};

// Scratch of a task: all query rows of one key/value head, row-major.
struct DecodeScratch {
  float* q;       // [rows][Dk], scaled
  float* scores;  // [rows][kDecodeKeys]
  float* out;     // [rows][Dv]
  float* sums;    // [rows][kLanes]
  float* row_max;
  LiveTile* live;  // [rows][panels]

  DecodeScratch(const DecodeLayout& layout, std::byte* at) {
    Carver carve(at);
    q = carve.take<float>(layout.rows * layout.q_stride);
    scores = carve.take<float>(layout.rows * layout.score_stride);
    out = carve.take<float>(layout.rows * layout.out_stride);
    sums = carve.take<float>(layout.rows * kMaxLanes);
    row_max = carve.take<float>(layout.rows);
    live = carve.take<LiveTile>(layout.rows * layout.live_stride);
  }
};

template <class T>
struct Decoder {
  const Forward& p;
  const DecodeLayout& layout;
  const LogitRule rule;
  const View<const T> k, v;
  const bool prefetch;  // keys and values come from memory, not from a cache

  Decoder(const Forward& p, const DecodeLayout& layout)
      : p(p),
        layout(layout),
        rule(p),
        k(p.k.as<const T>()),
        v(p.v.as<const T>()),
        prefetch(k.size[0] * k.size[1] * k.size[2] * (k.size[3] + v.size[3]) *
                     static_cast<int64_t>(sizeof(T)) >
                 (int64_t{4} << 20)) {}

  int64_t head(int64_t kv_head, int64_t row) const {
    return kv_head * (p.q.size[1] / p.k.size[1]) + row / p.q.size[2];
  }
  int64_t query(int64_t row) const { return row % p.q.size[2]; }

  // Asks for n elements; half of the lines would come too late without.
  HWY_INLINE void fetch(const T* at, int64_t n) const {
    for (int64_t i = 0; i < n; i += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(at + i, 0, 3);
  }

  // Products of all rows with keys [begin, end), four keys at a time; columns up to the next multiple of four
  // repeat the last key and are masked later.
  HWY_INLINE void dots(int64_t batch, int64_t kv_head, int64_t chunk, int64_t begin, int64_t end,
                       const DecodeScratch& s) const {
    for (int64_t key = begin; key < end; key += 4) {
      const T* at[4];
      for (int64_t j = 0; j < 4; ++j) at[j] = k.at(batch, kv_head, HWY_MIN(key + j, end - 1));
      float* scores = s.scores + (key - chunk);
      int64_t r = 0;
      for (; r + 3 < layout.rows || r + 2 == layout.rows; r += 2)
        dot_block<2>(s.q + r * layout.q_stride, layout.q_stride, at, k.size[3],
                     scores + r * layout.score_stride, layout.score_stride);
      if (r + 3 == layout.rows) {
        dot_block<3>(s.q + r * layout.q_stride, layout.q_stride, at, k.size[3],
                     scores + r * layout.score_stride, layout.score_stride);
      } else if (r + 1 == layout.rows) {
        dot_block<1>(s.q + r * layout.q_stride, layout.q_stride, at, k.size[3],
                     scores + r * layout.score_stride, layout.score_stride);
      }
      if (prefetch)
        for (int64_t j = key; j < HWY_MIN(key + 4, end); ++j) fetch(v.at(batch, kv_head, j), v.size[3]);
    }
  }

  // Logits of the chunk's columns become weights; earlier sums are rescaled when the row's maximum rises.
  HWY_INLINE void softmax(int64_t batch, int64_t kv_head, int64_t chunk, PanelRange range,
                          const DecodeScratch& s) const {
    const D d;
    for (int64_t r = 0; r < layout.rows; ++r) {
      float* scores = s.scores + r * layout.score_stride;
      const LiveTile* live = s.live + r * layout.live_stride;
      Vec maximum = hn::Set(d, -HUGE_VALF);
      for (int64_t panel = range.begin; panel < range.end; ++panel) {
        float* tile = scores + panel * kCols;
        if (!rule.plain || !live[panel].full || live[panel].end - live[panel].begin != kCols) {
          const int64_t key = chunk + panel * kCols;
          uint64_t words[kRows];
          visible_words(p, batch, head(kv_head, r), query(r), 1, key, live[panel], words);
          finish_logits(rule, p, batch, head(kv_head, r), query(r), 1, key, words, tile);
        }
        for (int64_t n = 0; n < kCols; n += kLanes) maximum = hn::Max(maximum, hn::Load(d, tile + n));
      }
      const float before = s.row_max[r];
      const float now = max_of_lanes(d, maximum);
      Vec sum = hn::Load(d, s.sums + r * kLanes);
      if (now > before) {
        s.row_max[r] = now;
        const Vec factor = exp2(d, hn::Set(d, before - now));
        sum = hn::Mul(sum, factor);
        float* out = s.out + r * layout.out_stride;
        for (int64_t f = 0; f < v.size[3]; f += kLanes)
          hn::Store(hn::Mul(hn::Load(d, out + f), factor), d, out + f);
      }
      const Vec m = hn::Set(d, s.row_max[r] == -HUGE_VALF ? 0.0F : s.row_max[r]);
      for (int64_t i = range.begin * kCols; i < range.end * kCols; i += kLanes) {
        const Vec weight = exp2(d, hn::Sub(hn::Load(d, scores + i), m));
        hn::Store(weight, d, scores + i);
        sum = hn::Add(sum, weight);
      }
      hn::Store(sum, d, s.sums + r * kLanes);
    }
  }

  // out += weights times values of keys [begin, end).
  HWY_INLINE void weigh(int64_t batch, int64_t kv_head, int64_t chunk, int64_t begin, int64_t end,
                        int64_t next, const DecodeScratch& s) const {
    for (int64_t key = begin; key < end; key += kWeighKeys) {
      const int64_t count = HWY_MIN(kWeighKeys, end - key);
      const T* values = v.at(batch, kv_head, key);
      if (prefetch)
        for (int64_t j = key + next - begin; j < HWY_MIN(key + next - begin + kWeighKeys, k.size[2]); ++j)
          fetch(k.at(batch, kv_head, j), k.size[3]);
      for (int64_t r = 0; r < layout.rows;) {
        const float* weights = s.scores + r * layout.score_stride + (key - chunk);
        float* out = s.out + r * layout.out_stride;
        const auto run = [&](auto rows, auto vectors) HWY_ATTR {
          weigh_rows<rows.value, vectors.value>(weights, layout.score_stride, values, v.stride[2], count,
                                                v.size[3], out, layout.out_stride);
          r += rows.value;
        };
        switch (layout.rows - r) {
          case 1:
            run(Int<1>(), Int<8>());
            break;
          case 2:
            run(Int<2>(), Int<4>());
            break;
          case 3:
          case 5:
            run(Int<3>(), Int<4>());
            break;
          case 4:
          case 7:
          case 8:
            run(Int<4>(), Int<2>());
            break;
          default:
            run(Int<6>(), Int<2>());
        }
      }
    }
  }

  // The same without what a row does not see, for values with a NaN or infinity: a weight of 0 does not stop
  // one.
  HWY_NOINLINE void weigh_visible(int64_t batch, int64_t kv_head, int64_t chunk, int64_t begin, int64_t end,
                                  const DecodeScratch& s) const {
    const D d;
    for (int64_t r = 0; r < layout.rows; ++r)
      for (int64_t first = begin; first < end; first += kWeighKeys)  // parts and order of weigh()
        for (int64_t f = 0; f < v.size[3]; f += kLanes) {
          Vec acc = hn::Zero(d);
          for (int64_t key = first; key < HWY_MIN(first + kWeighKeys, end); ++key) {
            if (!sees(p, batch, head(kv_head, r), query(r), key)) continue;
            const Vec x = load_first(d, v.at(batch, kv_head, key) + f, HWY_MIN(kLanes, v.size[3] - f));
            acc = hn::MulAdd(hn::Set(d, s.scores[r * layout.score_stride + key - chunk]), x, acc);
          }
          float* to = s.out + r * layout.out_stride + f;
          hn::Store(hn::Add(hn::Load(d, to), acc), d, to);
        }
  }

  HWY_INLINE bool values_finite(int64_t batch, int64_t kv_head, int64_t begin, int64_t end) const {
    const D d;
    const DI di;
    auto largest = hn::Zero(di);
    for (int64_t key = begin; key < end; ++key) {
      const T* at = v.at(batch, kv_head, key);
      int64_t f = 0;
      for (; f + kLanes <= v.size[3]; f += kLanes)
        largest = hn::Max(largest, hn::BitCast(di, hn::Abs(load(d, at + f))));
      if (f < v.size[3])
        largest = hn::Max(largest, hn::BitCast(di, hn::Abs(load_first(d, at + f, v.size[3] - f))));
    }
    return hn::AllTrue(di, hn::Lt(largest, hn::Set(di, 0x7F800000)));
  }

  // Keys [begin, end) of one head; what comes out stays in s.
  void run_split(int64_t batch, int64_t kv_head, int64_t begin, int64_t end, const DecodeScratch& s) const {
    const View<const T> q = p.q.as<const T>();
    for (int64_t i = 0; i < layout.rows * layout.q_stride; ++i) s.q[i] = 0.0F;
    for (int64_t r = 0; r < layout.rows; ++r)
      load_row(q.at(batch, head(kv_head, r), query(r)), q.stride[3], q.size[3], rule.query_factor,
               s.q + r * layout.q_stride);
    for (int64_t i = 0; i < layout.rows * layout.out_stride; ++i) s.out[i] = 0.0F;
    for (int64_t i = 0; i < layout.rows * kLanes; ++i) s.sums[i] = 0.0F;
    for (int64_t r = 0; r < layout.rows; ++r) s.row_max[r] = -HUGE_VALF;
    for (int64_t chunk = begin; chunk < end; chunk += kDecodeKeys) {
      const int64_t chunk_end = HWY_MIN(chunk + kDecodeKeys, end);
      PanelRange range{kDecodeKeys, 0};
      bool all_seen = !p.bias;
      for (int64_t r = 0; r < layout.rows; ++r) {
        const PanelRange found = live_panels(p, batch, head(kv_head, r), query(r), 1, chunk, chunk_end, kCols,
                                             s.live + r * layout.live_stride);
        range.begin = HWY_MIN(range.begin, found.begin);
        range.end = HWY_MAX(range.end, found.end);
        all_seen = all_seen && sees_all(found, chunk_end - chunk, s.live + r * layout.live_stride);
      }
      if (range.begin >= range.end) continue;
      const int64_t first = chunk + range.begin * kCols;
      const int64_t last = HWY_MIN(chunk + range.end * kCols, chunk_end);
      dots(batch, kv_head, chunk, first, last, s);
      softmax(batch, kv_head, chunk, range, s);
      if (all_seen || values_finite(batch, kv_head, first, last)) {
        weigh(batch, kv_head, chunk, first, last, chunk_end, s);
      } else {
        weigh_visible(batch, kv_head, chunk, first, last, s);
      }
    }
  }

  static HWY_INLINE bool sees_all(PanelRange found, int64_t keys, const LiveTile* live) {
    int64_t seen = 0;
    for (int64_t panel = found.begin; panel < found.end; ++panel)
      if (live[panel].full) seen += live[panel].end - live[panel].begin;
    return seen == keys;
  }
};

// Writes a finished row.
HWY_INLINE void close(const Forward& p, int64_t batch, int64_t head, int64_t query, float maximum, float sum,
                      const float* out) {
  const float factor = close_row(p, batch, head, query, maximum, sum);
  const int64_t features = p.v.size[3];
  for (int64_t f = 0; f < features; f += kLanes)
    store_out<kLanes>(p.out, batch, head, query, f, HWY_MIN(kLanes, features - f), factor, out + f);
}

template <class T>
void run_decode(const Forward& p, const ForwardTiling& tiling, std::byte* workspace, Parallel& parallel) {
  const DecodeLayout layout(p, tiling);
  const Decoder<T> decoder(p, layout);
  const int64_t kv_heads = p.k.size[1];
  const int64_t keys = p.k.size[2];
  const int64_t partial_floats = layout.partial_floats();
  float* partials = reinterpret_cast<float*>(workspace);
  std::byte* scratch = workspace + static_cast<size_t>(layout.partials * partial_floats * 4);

  parallel.run(p.k.size[0] * kv_heads * layout.splits, [&](int64_t task, int worker) HWY_ATTR {
    const D d;
    const int64_t split = task % layout.splits;
    const int64_t batch = task / layout.splits / kv_heads;
    const int64_t kv_head = task / layout.splits % kv_heads;
    const DecodeScratch s(layout, scratch + static_cast<size_t>(worker) * layout.worker_bytes());
    const int64_t begin = split * layout.split_keys;
    decoder.run_split(batch, kv_head, begin, HWY_MIN(begin + layout.split_keys, keys), s);
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

  // Merged in the order of the splits, into the first one's place. Too little work to share out.
  const D d;
  const int64_t heads = p.q.size[1];
  const int64_t queries = p.q.size[2];
  for (int64_t row = 0; row < p.q.size[0] * heads * queries; ++row) {
    float* first = partials + row * layout.splits * partial_floats;
    float maximum = -HUGE_VALF;
    for (int64_t i = 0; i < layout.splits; ++i) maximum = HWY_MAX(maximum, first[i * partial_floats]);
    const Vec m = hn::Set(d, maximum == -HUGE_VALF ? 0.0F : maximum);
    float sum = 0.0F;
    for (int64_t i = 0; i < layout.splits; ++i) {
      const float* part = first + i * partial_floats;
      const Vec factor = exp2(d, hn::Sub(hn::Set(d, part[0]), m));
      if (part[0] == -HUGE_VALF && part[1] == 0.0F) {
        if (i == 0)
          for (int64_t f = 0; f < p.v.size[3]; f += kLanes) hn::Store(hn::Zero(d), d, first + kMaxLanes + f);
        continue;
      }
      sum += part[1] * hn::GetLane(factor);
      for (int64_t f = 0; f < p.v.size[3]; f += kLanes) {
        float* to = first + kMaxLanes + f;
        const Vec mine = hn::Mul(hn::Load(d, part + kMaxLanes + f), factor);
        hn::Store(i == 0 ? mine : hn::Add(hn::Load(d, to), mine), d, to);
      }
    }
    close(p, row / (heads * queries), row / queries % heads, row % queries, maximum, sum, first + kMaxLanes);
  }
}

void Decode(const Forward& p, const ForwardTiling& tiling, std::byte* workspace, Parallel& parallel) {
  switch (p.q.dtype) {
    case DType::f32:
      return run_decode<float>(p, tiling, workspace, parallel);
    case DType::bf16:
      return run_decode<bf16>(p, tiling, workspace, parallel);
    case DType::f16:
      return run_decode<f16>(p, tiling, workspace, parallel);
  }
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
