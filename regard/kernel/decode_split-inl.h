// One task of decoding: some keys of one key/value head against all query rows of its group.
#if defined(REGARD_KERNEL_DECODE_SPLIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_DECODE_SPLIT_INL_H_
#undef REGARD_KERNEL_DECODE_SPLIT_INL_H_
#else
#define REGARD_KERNEL_DECODE_SPLIT_INL_H_
#endif

#include <cmath>

#include "regard/kernel/decode-inl.h"
#include "regard/kernel/decode_layout.h"
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

// Where the keys and values of a chunk lie, kPageUnit positions a piece; pieces without a position of the
// entry are not set. Keys go on into the next chunk, to be fetched ahead.
template <class T>
struct DecodeChunk {
  const T* keys[2 * kDecodePieces];
  const T* values[kDecodePieces];
  int64_t key_stride, value_stride;

  const T* key(int64_t at) const { return in(keys, at, key_stride); }
  const T* value(int64_t at) const { return in(values, at, value_stride); }

 private:
  static HWY_INLINE const T* in(const T* const* pieces, int64_t at, int64_t stride) {
    const auto position = static_cast<uint64_t>(at);
    return pieces[position / kPageUnit] + static_cast<int64_t>(position % kPageUnit) * stride;
  }
};

// Scratch of a task: all query rows of one key/value head, row-major.
struct DecodeScratch {
  float* q;       // [rows][Dk], scaled
  float* scores;  // [rows][kDecodeKeys]
  float* out;     // [rows][Dv]
  float* sums;    // [rows][kLanes]
  float* row_max;
  float* key_scales;    // [kDecodeKeys] of a chunk; int8 only
  float* value_scales;  //
  float* wide;          // [4][Dk] keys as floats, for more rows than read them at once
  LiveTile* live;       // [rows][panels]

  DecodeScratch(const DecodeLayout& layout, std::byte* at) {
    Carver carve(at);
    q = carve.take<float>(layout.rows * layout.q_stride);
    scores = carve.take<float>(layout.rows * layout.score_stride);
    out = carve.take<float>(layout.rows * layout.out_stride);
    sums = carve.take<float>(layout.rows * kMaxLanes);
    key_scales = carve.take<float>(kDecodeKeys);
    value_scales = carve.take<float>(kDecodeKeys);
    wide = carve.take<float>(4 * layout.q_stride);
    row_max = carve.take<float>(layout.rows);
    live = carve.take<LiveTile>(layout.rows * layout.live_stride);
  }
};

// T: the type of keys and values; q has its own.
template <class T>
struct Decoder {
  const Forward& p;
  const DecodeLayout& layout;
  const LogitRule rule;
  const int64_t key_features, value_features;
  const bool prefetch;  // keys and values come from memory, not from a cache

  Decoder(const Forward& p, const DecodeLayout& layout)
      : p(p),
        layout(layout),
        rule(p),
        key_features(p.k.size[3]),
        value_features(p.v.size[3]),
        prefetch(p.k.size[0] * p.k.size[1] * p.k.size[2] * (key_features + value_features) *
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

  // Positions [begin, end) and those behind them, up to `last`, where the entry's keys end.
  HWY_INLINE DecodeChunk<T> find_chunk(int64_t batch, int64_t kv_head, int64_t chunk, int64_t last) const {
    DecodeChunk<T> found;
    const int64_t pieces =
        HWY_MIN((last - chunk + kPageUnit - 1) / kPageUnit, prefetch ? 2 * kDecodePieces : kDecodePieces);
    if constexpr (sizeof(T) > 1) {
      if (!p.pages) {
        const View<const T> k = p.k.as<const T>();
        const View<const T> v = p.v.as<const T>();
        found.key_stride = k.stride[2];
        found.value_stride = v.stride[2];
        const T* key = k.at(batch, kv_head, chunk);
        const T* value = v.at(batch, kv_head, chunk);
        for (int64_t i = 0; i < pieces; ++i) found.keys[i] = key + i * kPageUnit * k.stride[2];
        for (int64_t i = 0; i < HWY_MIN(pieces, kDecodePieces); ++i)
          found.values[i] = value + i * kPageUnit * v.stride[2];
        return found;
      }
    }
    const Pages& pages = p.pages;
    found.key_stride = pages.k.stride[2];
    found.value_stride = pages.v.stride[2];
    const int64_t first = HWY_MAX(pages.begin(batch) - chunk, 0) / kPageUnit;
    for (int64_t i = first; i < pieces; ++i) {
      const int64_t page = pages.page(batch, chunk + i * kPageUnit);
      const int64_t row = (chunk + i * kPageUnit) % pages.page_size();
      found.keys[i] = static_cast<const T*>(pages.k.data) + pages.k.offset(page, kv_head, row);
      if (i < kDecodePieces)
        found.values[i] = static_cast<const T*>(pages.v.data) + pages.v.offset(page, kv_head, row);
    }
    return found;
  }

  // Scales of positions [begin, end) of a chunk.
  HWY_INLINE void gather_scales(int64_t batch, int64_t kv_head, int64_t chunk, int64_t begin, int64_t end,
                                const DecodeScratch& s) const {
    for (int64_t i = 0; i < kDecodeKeys; ++i) s.key_scales[i] = s.value_scales[i] = 0.0F;
    const View<const float>& of_keys = p.pages.k.scales;
    const View<const float>& of_values = p.pages.v.scales;
    for (int64_t key = begin, stop; key < end; key = stop) {
      stop = HWY_MIN((key / kPageUnit + 1) * kPageUnit, end);
      const int64_t page = p.pages.page(batch, key);
      const int64_t row = key % p.pages.page_size();
      for (int64_t i = 0; i < stop - key; ++i) {
        s.key_scales[key - chunk + i] = of_keys(page, kv_head, row + i, 0);
        s.value_scales[key - chunk + i] = of_values(page, kv_head, row + i, 0);
      }
    }
  }

  // Products of all rows with four keys.
  template <class K>
  HWY_INLINE void dots_of_four(const K* const at[4], float* scores, const DecodeScratch& s) const {
    int64_t r = 0;
    for (; r + 3 < layout.rows || r + 2 == layout.rows; r += 2)
      dot_block<2>(s.q + r * layout.q_stride, layout.q_stride, at, key_features,
                   scores + r * layout.score_stride, layout.score_stride);
    if (r + 3 == layout.rows) {
      dot_block<3>(s.q + r * layout.q_stride, layout.q_stride, at, key_features,
                   scores + r * layout.score_stride, layout.score_stride);
    } else if (r + 1 == layout.rows) {
      dot_block<1>(s.q + r * layout.q_stride, layout.q_stride, at, key_features,
                   scores + r * layout.score_stride, layout.score_stride);
    }
  }

  // Products of all rows with keys [begin, end) of a chunk, four keys at a time; columns up to the next
  // multiple of four repeat the last key and are masked later. Keys that are not floats are widened once for
  // all rows.
  HWY_INLINE void dots(const DecodeChunk<T>& chunk, int64_t begin, int64_t end,
                       const DecodeScratch& s) const {
    for (int64_t key = begin; key < end; key += 4) {
      const T* first = chunk.key(key);
      const int64_t others = HWY_MIN(end - 1 - key, 3);
      const T* at[4];
      for (int64_t j = 0; j < 4; ++j) at[j] = first + HWY_MIN(j, others) * chunk.key_stride;
      if (sizeof(T) < sizeof(float) && layout.rows > 3) {
        const float* wide[4];
        for (int64_t j = 0; j < 4; ++j) {
          float* to = s.wide + j * layout.q_stride;
          load_row(at[j], 1, key_features, 1.0F, to);
          wide[j] = to;
        }
        dots_of_four(wide, s.scores + key, s);
      } else {
        dots_of_four(at, s.scores + key, s);
      }
      if (prefetch)
        for (int64_t j = 0; j <= others; ++j) fetch(chunk.value(key + j), value_features);
    }
    if constexpr (sizeof(T) == 1) {
      const D d;
      for (int64_t r = 0; r < layout.rows; ++r)
        for (int64_t i = begin; i < end; i += kLanes) {
          float* at = s.scores + r * layout.score_stride + i;
          hn::Store(hn::Mul(hn::Load(d, at), hn::Load(d, s.key_scales + i)), d, at);
        }
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
        for (int64_t f = 0; f < value_features; f += kLanes)
          hn::Store(hn::Mul(hn::Load(d, out + f), factor), d, out + f);
      }
      const Vec m = hn::Set(d, s.row_max[r] == -HUGE_VALF ? 0.0F : s.row_max[r]);
      for (int64_t i = range.begin * kCols; i < range.end * kCols; i += kLanes) {
        const Vec weight = exp2(d, hn::Sub(hn::Load(d, scores + i), m));
        if constexpr (sizeof(T) == 1)
          hn::Store(hn::Mul(weight, hn::Load(d, s.value_scales + i)), d, scores + i);
        else
          hn::Store(weight, d, scores + i);
        sum = hn::Add(sum, weight);
      }
      hn::Store(sum, d, s.sums + r * kLanes);
    }
  }

  // Parts end at multiples of kWeighKeys wherever they begin: what is left out because no row sees it does
  // not change the order of the sum.
  static HWY_INLINE int64_t part_end(int64_t key, int64_t end) {
    return HWY_MIN(key / kWeighKeys * kWeighKeys + kWeighKeys, end);
  }

  // out += weights times values of keys [begin, end) of a chunk. What follows on the chunk's end up to `last`
  // is fetched meanwhile.
  HWY_INLINE void weigh(const DecodeChunk<T>& chunk, int64_t begin, int64_t end, int64_t next, int64_t last,
                        const DecodeScratch& s) const {
    for (int64_t key = begin, stop; key < end; key = stop) {
      stop = part_end(key, end);
      ValueRows<T> values{chunk.value(key), HWY_MIN(kPageUnit, stop - key), nullptr, stop - key,
                          chunk.value_stride};
      if (values.first_keys < values.keys) {
        values.second = chunk.value(key + kPageUnit);
        if (values.second == values.first + kPageUnit * values.stride) values.first_keys = values.keys;
      }
      if (prefetch)
        for (int64_t j = key + next - begin; j < HWY_MIN(stop + next - begin, last); ++j)
          fetch(chunk.key(j), key_features);
      for (int64_t r = 0; r < layout.rows;) {
        const float* weights = s.scores + r * layout.score_stride + key;
        float* out = s.out + r * layout.out_stride;
        const auto run = [&](auto rows, auto vectors) HWY_ATTR {
          weigh_rows<rows.value, vectors.value>(weights, layout.score_stride, values, value_features, out,
                                                layout.out_stride);
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
  HWY_NOINLINE void weigh_visible(int64_t batch, int64_t kv_head, int64_t first_key,
                                  const DecodeChunk<T>& chunk, int64_t begin, int64_t end,
                                  const DecodeScratch& s) const {
    const D d;
    for (int64_t r = 0; r < layout.rows; ++r)
      for (int64_t first = begin; first < end; first = part_end(first, end))  // parts and order of weigh()
        for (int64_t f = 0; f < value_features; f += kLanes) {
          Vec acc = hn::Zero(d);
          for (int64_t key = first; key < part_end(first, end); ++key) {
            if (first_key + key < kernel::first_key(p, batch)) continue;
            if (!sees(p, batch, head(kv_head, r), query(r), first_key + key)) continue;
            const Vec x = load_first(d, chunk.value(key) + f, HWY_MIN(kLanes, value_features - f));
            acc = hn::MulAdd(hn::Set(d, s.scores[r * layout.score_stride + key]), x, acc);
          }
          float* to = s.out + r * layout.out_stride + f;
          hn::Store(hn::Add(hn::Load(d, to), acc), d, to);
        }
  }

  HWY_INLINE bool values_finite(const DecodeChunk<T>& chunk, int64_t begin, int64_t end,
                                const DecodeScratch& s) const {
    const D d;
    const DI di;
    auto largest = hn::Zero(di);
    if constexpr (sizeof(T) == 1) {
      for (int64_t i = 0; i < kDecodeKeys; i += kLanes)
        largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::Load(d, s.value_scales + i))));
    } else {
      for (int64_t key = begin; key < end; ++key) {
        const T* at = chunk.value(key);
        int64_t f = 0;
        for (; f + kLanes <= value_features; f += kLanes)
          largest = hn::Max(largest, hn::BitCast(di, hn::Abs(load(d, at + f))));
        if (f < value_features)
          largest = hn::Max(largest, hn::BitCast(di, hn::Abs(load_first(d, at + f, value_features - f))));
      }
    }
    return hn::AllTrue(di, hn::Lt(largest, hn::Set(di, 0x7F800000)));
  }

  HWY_INLINE void load_queries(int64_t batch, int64_t kv_head, const DecodeScratch& s) const {
    for (int64_t i = 0; i < layout.rows * layout.q_stride; ++i) s.q[i] = 0.0F;
    with_type(p.q.dtype, [&](auto element) HWY_ATTR {
      const View<const decltype(element)> q = p.q.as<const decltype(element)>();
      for (int64_t r = 0; r < layout.rows; ++r)
        load_row(q.at(batch, head(kv_head, r), query(r)), q.stride[3], q.size[3], rule.query_factor,
                 s.q + r * layout.q_stride);
    });
  }

  // Keys [begin, end) of one head; what comes out stays in s.
  void run_split(int64_t batch, int64_t kv_head, int64_t begin, int64_t end, const DecodeScratch& s) const {
    load_queries(batch, kv_head, s);
    for (int64_t i = 0; i < layout.rows * layout.out_stride; ++i) s.out[i] = 0.0F;
    for (int64_t i = 0; i < layout.rows * kLanes; ++i) s.sums[i] = 0.0F;
    for (int64_t r = 0; r < layout.rows; ++r) s.row_max[r] = -HUGE_VALF;
    const int64_t last_key = end_key(p, batch);
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
      const DecodeChunk<T> at = find_chunk(batch, kv_head, chunk, last_key);
      // A window may begin inside a page; what comes before in its piece lies there all the same.
      const int64_t held = HWY_MAX(first_key(p, batch) - chunk, 0) / kPageUnit * kPageUnit;
      const int64_t first = HWY_MAX(range.begin * kCols, held);
      const int64_t last = HWY_MIN(range.end * kCols, chunk_end - chunk);
      if constexpr (sizeof(T) == 1)
        gather_scales(batch, kv_head, chunk, HWY_MAX(chunk + first, first_key(p, batch)), chunk + last, s);
      dots(at, first, last, s);
      softmax(batch, kv_head, chunk, range, s);
      if (all_seen || values_finite(at, first, last, s)) {
        weigh(at, first, last, chunk_end - chunk, last_key - chunk, s);
      } else {
        weigh_visible(batch, kv_head, chunk, at, first, last, s);
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

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
