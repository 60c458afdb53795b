// From q k^T to logits: softcap, bias, ALiBi and mask, on a stored tile.
#if defined(REGARD_KERNEL_LOGITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNEL_LOGITS_INL_H_
#undef REGARD_KERNEL_LOGITS_INL_H_
#else
#define REGARD_KERNEL_LOGITS_INL_H_
#endif

#include <cmath>
#include <numbers>

#include "regard/kernel/rows.h"
#include "regard/kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Logits are kept in units of log2, so that the exponential needs no product. Without a softcap scale *
// log2(e) is folded into q; with one, scale / cap is, and cap * log2(e) enters after the tanh. A caller's own
// score gets natural units; log2(e) enters after it.
struct LogitRule {
  bool plain;          // no softcap, score, bias or slope: the product is the logit
  bool bends;          // softcap or score: d logit / d product is not constant
  float query_factor;  // what q is multiplied by
  float key_factor;    // scale / query_factor: what is missing to the gradient of k
  float cap;           // softcap in the units that tanh leaves, 0: none

  explicit LogitRule(const Forward& p)
      : plain(!(p.softcap > 0.0F) && !p.score && !p.bias && !p.slopes),
        bends(p.softcap > 0.0F || p.score),
        query_factor(p.softcap > 0.0F ? p.scale / p.softcap
                     : p.score        ? p.scale
                               : static_cast<float>(static_cast<double>(p.scale) * std::numbers::log2e)),
        key_factor(p.softcap > 0.0F ? p.softcap
                   : p.score        ? 1.0F
                                    : static_cast<float>(kLn2)),
        cap(p.softcap > 0.0F ? p.softcap * (p.score ? 1.0F : kLog2e) : 0.0F) {}
};

// A log-sum-exp in units of log2, in two parts: rounding it once more would cost small weights, and
// gradients, their digits.
struct SplitLse {
  float high;
  float low = 0.0F;

  explicit SplitLse(double lse) : high(static_cast<float>(lse * std::numbers::log2e)) {
    if (std::isfinite(high)) low = static_cast<float>(lse * std::numbers::log2e - static_cast<double>(high));
  }
};

// Bit c of words[r]: row + r sees key + c. live: the columns of the tile that take part; rows past `count`
// see nothing.
HWY_INLINE void visible_words(const Forward& p, int64_t batch, int64_t head, int64_t row, int64_t count,
                              int64_t key, LiveTile live, uint64_t* words) {
  const uint64_t in_range = ((uint64_t{1} << live.end) - 1) & ~((uint64_t{1} << live.begin) - 1);
  if (live.full || !p.mask) {
    for (int64_t r = 0; r < count; ++r) words[r] = in_range;
  } else {
    p.mask.bits(p.mask.self, batch, head, row, count, key, HWY_MIN(kCols, p.k.size[2] - key), words);
    for (int64_t r = 0; r < count; ++r) words[r] &= in_range;
  }
  for (int64_t r = count; r < kRows; ++r) words[r] = 0;
}

// The caller's score of a tile whose scores are still in natural units, softcap included.
inline HWY_NOINLINE void apply_score(const LogitRule& rule, const Forward& p, int64_t batch, int64_t head,
                                     int64_t row, int64_t count, int64_t key, int64_t columns,
                                     float* HWY_RESTRICT tile, float* HWY_RESTRICT slopes) {
  const D d;
  HWY_ALIGN float derivatives[kTile];
  for (int64_t i = 0; i < count * kCols; i += kLanes) {
    Vec slope = hn::Set(d, 1.0F);
    if (rule.cap > 0.0F) {
      const Vec t = tanh(d, hn::Load(d, tile + i));
      hn::Store(hn::Mul(hn::Set(d, rule.cap), t), d, tile + i);
      slope = hn::NegMulAdd(t, t, slope);
    }
    if (slopes != nullptr) hn::Store(slope, d, slopes + i);
  }
  p.score.apply(p.score.self, batch, head, row, count, key, columns, kCols, tile,
                slopes == nullptr ? nullptr : derivatives);
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      tile[r * kCols + c] *= kLog2e;
      if (slopes != nullptr) slopes[r * kCols + c] *= derivatives[r * kCols + c];
    }
}

// Turns products into logits in place and sets what a row does not see to -infinity (by selection: a NaN
// there vanishes). tile: [kRows][kCols]; rows past `count` are left alone. words: visible_words(). slopes, if
// given and rule.bends: d logit / d product in the tile's layout.
HWY_INLINE void finish_logits(const LogitRule& rule, const Forward& p, int64_t batch, int64_t head,
                              int64_t row, int64_t count, int64_t key, const uint64_t* words,
                              float* HWY_RESTRICT tile, float* HWY_RESTRICT slopes = nullptr) {
  const D d;
  const int64_t columns = HWY_MIN(kCols, p.k.size[2] - key);
  if (rule.plain) {
    for (int64_t r = 0; r < count; ++r)
#pragma GCC unroll 4
      for (int64_t n = 0; n < kCols; n += kLanes) {
        float* at = tile + r * kCols + n;
        hn::Store(hn::IfThenElse(visible(d, words[r] >> n), hn::Load(d, at), hn::Set(d, -HUGE_VALF)), d, at);
      }
    return;
  }
  if (p.score) apply_score(rule, p, batch, head, row, count, key, columns, tile, slopes);
  const float cap = p.score ? 0.0F : rule.cap;
  const Vec slope = hn::Set(d, p.slopes ? p.slopes(batch, head, 0, 0) * kLog2e : 0.0F);
  const Vec lane = hn::Iota(d, 0.0F);
  HWY_ALIGN float copied[kCols];
  for (int64_t r = 0; r < count; ++r) {
    const float* bias = nullptr;
    if (p.bias) {
      bias = p.bias.at(batch, head, row + r) + key * p.bias.stride[3];
      if (p.bias.stride[3] != 1 || columns < kCols) {
        for (int64_t c = 0; c < kCols; ++c) copied[c] = c < columns ? bias[c * p.bias.stride[3]] : 0.0F;
        bias = copied;
      }
    }
    const auto first = static_cast<float>(row + r + alibi_offset(p, batch) - key);
    for (int64_t n = 0; n < kCols; n += kLanes) {
      float* at = tile + r * kCols + n;
      Vec x = hn::Load(d, at);
      if (cap > 0.0F) {
        const Vec t = tanh(d, x);
        if (slopes != nullptr) hn::Store(hn::NegMulAdd(t, t, hn::Set(d, 1.0F)), d, slopes + r * kCols + n);
        x = hn::Mul(hn::Set(d, cap), t);
      }
      if (bias != nullptr) x = hn::MulAdd(hn::LoadU(d, bias + n), hn::Set(d, kLog2e), x);
      if (p.slopes) {
        const Vec distance = hn::Abs(hn::Sub(hn::Set(d, first - static_cast<float>(n)), lane));
        x = hn::NegMulAdd(slope, distance, x);
      }
      hn::Store(hn::IfThenElse(visible(d, words[r] >> n), x, hn::Set(d, -HUGE_VALF)), d, at);
    }
  }
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle guard
