#pragma once

#include <cmath>
#include <cstdint>

// The one merge of partial softmax results: of splits of keys (decode), of the fine and coarse part of block
// attention, of the rounds of hashed attention.
namespace regard::kernel {

// What some keys give to a row: weights e^(logit - maximum) that sum up to `sum`, and the sum of weights
// times values. A normalised result is one with maximum = LSE and sum = 1. maximum = -infinity and sum = 0:
// no keys.
struct PartialRow {
  double maximum;
  double sum;
  const float* out;
};

struct MergedRow {
  double maximum;
  double sum;
};

// total[0 .. features) = sum of e^(maximum_i - maximum) out_i over parts [begin, end), in their order; total
// may be the first one's out. part(i) gives a PartialRow. Associative up to rounding; a part without keys
// changes nothing.
template <class PartOf>
MergedRow merge_row(int64_t begin, int64_t end, const PartOf& part, int64_t features, float* total) {
  MergedRow merged{-HUGE_VAL, 0.0};
  for (int64_t i = begin; i < end; ++i) {
    const double maximum = part(i).maximum;
    if (!(maximum <= merged.maximum)) merged.maximum = maximum;  // a NaN stays
  }
  const double top = merged.maximum == -HUGE_VAL ? 0.0 : merged.maximum;
  for (int64_t i = begin; i < end; ++i) {
    const PartialRow p = part(i);
    if (p.maximum == -HUGE_VAL && p.sum == 0.0) {
      if (i == begin)
        for (int64_t f = 0; f < features; ++f) total[f] = 0.0F;
      continue;
    }
    const double weight = std::exp(p.maximum - top);
    const auto factor = static_cast<float>(weight);
    merged.sum += p.sum * weight;
    if (i == begin)
      for (int64_t f = 0; f < features; ++f) total[f] = p.out[f] * factor;
    else
      for (int64_t f = 0; f < features; ++f) total[f] += p.out[f] * factor;
  }
  return merged;
}

}  // namespace regard::kernel
