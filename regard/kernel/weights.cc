#include <cmath>
#include <memory>
#include <new>
#include <stdexcept>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/weights.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/forward.h"
#include "regard/kernel/logits-inl.h"
#include "regard/kernel/pack-inl.h"
#include "regard/kernel/rows.h"
#include "regard/kernel/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// The same products and logit rules as a prefill strip, bit for bit, so that exp(logit - lse) fits what
// forward() made of them. q: [Dk / kCols][kRows][kCols]; panel and staging: kCols * Dk floats each.
template <class T>
void weights_of(const Forward& p, const View<const float>& lse, const Rows& rows, int64_t key, int64_t keys,
                float* q, float* panel, float* staging, float* weights, bool as_logits) {
  const D d;
  const LogitRule rule(p);
  const int64_t features = p.q.size[3];
  const int64_t kv_head = rows.head / (p.q.size[1] / p.k.size[1]);
  const View<const T> queries = p.q.as<const T>();
  const View<const T> all_keys = p.k.as<const T>();
  HWY_ALIGN float tile[kTile];
  for (int64_t row = 0; row < rows.count; row += kRows) {
    const int64_t count = HWY_MIN(kRows, rows.count - row);
    for (int64_t r = 0; r < count; ++r)
      pack_query(queries.at(rows.batch, rows.head, rows.begin + row + r), queries.stride[3], features,
                 rule.query_factor, r, q);
    for (int64_t at = 0; at < keys; at += kCols) {
      const int64_t columns = HWY_MIN(kCols, keys - at);
      View<const T> from_key = all_keys;
      from_key.data = all_keys.at(rows.batch, kv_head, key + at);
      pack_keys(from_key, 0, 0, 0, columns, staging, panel);
      Accumulators acc;
      multiply_features(d, q, kRows, panel, 0, features, acc);
      store(d, acc, tile);
      for (int64_t f = kFeatureChunk; f < features; f += kFeatureChunk) {
        multiply_features(d, q, kRows, panel, f, features, acc);
        add_to(d, acc, tile);
      }
      const LiveTile live{0, static_cast<uint8_t>(columns), false, 0};
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
          const Vec weight = exp2(d, hn::Sub(hn::Sub(logit, hn::Set(d, total.high)), hn::Set(d, total.low)));
          hn::Store(hn::IfThenZeroElse(hidden, weight), d, x);
        }
        for (int64_t c = 0; c < columns; ++c) to[c] = tile[r * kCols + c];
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
#include "regard/kernel/prefill_layout.h"

namespace regard::kernel {

HWY_EXPORT(WeightsTile);

void weights_tile(const Forward& problem, View<const float> lse, int64_t batch, int64_t head, int64_t row,
                  int64_t rows, int64_t key, int64_t keys, float* weights, bool as_logits) {
  if (rows <= 0 || keys <= 0) return;
  if (problem.pages) throw std::invalid_argument("weights_tile knows no keys in pages");
  const int64_t dk = round_up(problem.q.size[3], kMaxCols);
  struct Release {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  const auto floats = static_cast<size_t>(dk * (12 + 2 * kMaxCols));
  const std::unique_ptr<float, Release> scratch(new (std::align_val_t{64}) float[floats]());
  float* q = scratch.get();
  float* panel = q + dk * 12;
  REGARD_DISPATCH(WeightsTile)
  (problem, lse, {batch, head, row, rows}, key, keys, q, panel, panel + dk * kMaxCols, weights, as_logits);
}

}  // namespace regard::kernel

#endif  // HWY_ONCE
