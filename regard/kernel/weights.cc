#include <cmath>
#include <memory>
#include <new>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/weights.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/forward.h"
#include "regard/kernel/logits-inl.h"
#include "regard/kernel/pages-inl.h"
#include "regard/kernel/prefill_layout.h"
#include "regard/kernel/rows.h"
#include "regard/kernel/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

static_assert(kWeightsChunk % kRows == 0);

// Keys [key + live.begin, key + live.end) of an entry in pages as a panel; the other columns become 0.
template <class T>
void pack_live_keys(const Forward& p, int64_t batch, int64_t kv_head, int64_t key, const LiveTile& live,
                    float* staging, float* panel) {
  const int64_t features = p.q.size[3];
  for (int64_t i = 0; i < kCols * features; ++i) staging[i] = 0.0F;
  for (int64_t c = live.begin; c < live.end; ++c) {
    const PageRow<T> row = page_row<T>(p.pages, p.pages.k, batch, kv_head, key + c);
    load_row(row.at, 1, features, row.scale, staging + c * features);
  }
  transpose(staging, features, kCols, features, panel, kCols);
}

// The same products and logit rules as a prefill strip, bit for bit, so that exp(logit - lse) fits what
// forward() made of them. q: [kWeightsChunk / kRows][Dk / kCols][kRows][kCols]; panel and staging: kCols * Dk
// floats each. A panel of keys is packed once for a chunk of rows.
template <class T>
void weights_of(const Forward& p, const View<const float>& lse, const Rows& rows, int64_t key, int64_t keys,
                float* q, float* panel, float* staging, float* weights, bool as_logits) {
  const D d;
  const LogitRule rule(p);
  const int64_t features = p.q.size[3];
  const int64_t q_stride = kRows * round_up(features, kCols);
  const int64_t kv_head = rows.head / (p.q.size[1] / p.k.size[1]);
  const View<const T> queries = p.q.as<const T>();
  const View<const T> all_keys = p.k.as<const T>();
  HWY_ALIGN float tile[kTile];
  for (int64_t chunk = 0; chunk < rows.count; chunk += kWeightsChunk) {
    const int64_t chunk_end = HWY_MIN(chunk + kWeightsChunk, rows.count);
    for (int64_t row = chunk; row < chunk_end; ++row)
      pack_query(queries.at(rows.batch, rows.head, rows.begin + row), queries.stride[3], features,
                 rule.query_factor, (row - chunk) % kRows, q + (row - chunk) / kRows * q_stride);
    for (int64_t at = 0; at < keys; at += kCols) {
      const int64_t columns = HWY_MIN(kCols, keys - at);
      LiveTile live{0, static_cast<uint8_t>(columns), false, 0};
      if (p.pages) {
        const int64_t first = HWY_MAX(first_key(p, rows.batch) - key - at, int64_t{0});
        const int64_t last = HWY_MIN(end_key(p, rows.batch) - key - at, columns);
        live.end = static_cast<uint8_t>(HWY_MAX(last, int64_t{0}));
        live.begin = static_cast<uint8_t>(HWY_MIN(first, int64_t{live.end}));
        with_type(p.pages.type, [&](auto element) HWY_ATTR {
          pack_live_keys<decltype(element)>(p, rows.batch, kv_head, key + at, live, staging, panel);
        });
      } else {
        View<const T> from_key = all_keys;
        from_key.data = all_keys.at(rows.batch, kv_head, key + at);
        pack_keys(from_key, 0, 0, 0, columns, staging, panel);
      }
      for (int64_t row = chunk; row < chunk_end; row += kRows) {
        const int64_t count = HWY_MIN(kRows, chunk_end - row);
        const float* strip = q + (row - chunk) / kRows * q_stride;
        Accumulators acc;
        multiply_features(d, strip, kRows, panel, 0, features, acc);
        store(d, acc, tile);
        for (int64_t f = kFeatureChunk; f < features; f += kFeatureChunk) {
          multiply_features(d, strip, kRows, panel, f, features, acc);
          add_to(d, acc, tile);
        }
        uint64_t words[kRows];
        visible_words(p, rows.batch, rows.head, rows.begin + row, count, key + at, live, words);
        finish_logits(rule, p, rows.batch, rows.head, rows.begin + row, count, key + at, words, tile);
        for (int64_t r = 0; r < count; ++r) {
          float* to = weights + (row + r) * keys + at;
          if (as_logits) {
            for (int64_t c = 0; c < columns; ++c)
              to[c] = static_cast<float>(static_cast<double>(tile[r * kCols + c]) * kLn2);
            continue;
          }
          const SplitLse total(lse(rows.batch, rows.head, rows.begin + row + r, 0));
          for (int64_t n = 0; n < kCols; n += kLanes) {
            float* x = tile + r * kCols + n;
            const Vec logit = hn::Load(d, x);
            const auto hidden = hn::Eq(logit, hn::Set(d, -HUGE_VALF));
            const Vec weight =
                exp2(d, hn::Sub(hn::Sub(logit, hn::Set(d, total.high)), hn::Set(d, total.low)));
            hn::Store(hn::IfThenZeroElse(hidden, weight), d, x);
          }
          for (int64_t c = 0; c < columns; ++c) to[c] = tile[r * kCols + c];
        }
      }
    }
  }
}

void WeightsTile(const Forward& p, const View<const float>& lse, const Rows& rows, int64_t key, int64_t keys,
                 float* q, float* panel, float* staging, float* weights, bool as_logits) {
  with_type(p.q.dtype, [&](auto element) HWY_ATTR {
    weights_of<decltype(element)>(p, lse, rows, key, keys, q, panel, staging, weights, as_logits);
  });
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "regard/kernel/dispatch.h"

namespace regard::kernel {

HWY_EXPORT(WeightsTile);

void weights_tile(const Forward& problem, View<const float> lse, int64_t batch, int64_t head, int64_t row,
                  int64_t rows, int64_t key, int64_t keys, float* weights, bool as_logits) {
  if (rows <= 0 || keys <= 0) return;
  const int64_t dk = round_up(problem.q.size[3], kMaxCols);
  struct Release {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  const auto floats = static_cast<size_t>(dk * (kWeightsChunk + 2 * kMaxCols));
  const std::unique_ptr<float, Release> scratch(new (std::align_val_t{64}) float[floats]());
  float* q = scratch.get();
  float* panel = q + dk * kWeightsChunk;
  REGARD_DISPATCH(WeightsTile)
  (problem, lse, {batch, head, row, rows}, key, keys, q, panel, panel + dk * kMaxCols, weights, as_logits);
}

}  // namespace regard::kernel

#endif  // HWY_ONCE
