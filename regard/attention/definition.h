#pragma once

#include <cmath>
#include <limits>

#include "regard/attention/lower.h"

// The definition of a logit and of who sees whom, one pair at a time, in float64. The reference is built of
// it; the kernels share nothing with it.
namespace regard::attention {

inline double read(const ConstAnyView& view, int64_t b, int64_t h, int64_t p, int64_t f) {
  switch (view.dtype) {
    case kernel::DType::f32:
      return view.as<const float>()(b, h, p, f);
    case kernel::DType::bf16:
      return kernel::to_float(view.as<const kernel::bf16>()(b, h, p, f));
    case kernel::DType::f16:
      return kernel::to_float(view.as<const kernel::f16>()(b, h, p, f));
  }
  return 0;
}

class Definition {
 public:
  const int64_t batch, heads, queries, keys;
  const int64_t group;  // query heads per key/value head
  const double scale;

  Definition(const Spec& spec, const Operands& operands)
      : batch(operands.q.size[0]),
        heads(operands.q.size[1]),
        queries(operands.q.size[2]),
        keys(operands.k.size[2]),
        group(heads / operands.k.size[1]),
        scale(effective_scale(spec, operands)),
        spec_(spec),
        operands_(operands) {
    const kernel::Extents square{batch, heads, queries, keys};
    const kernel::Extents per_head{batch, heads, 1, 1};
    if (operands.bias) bias_ = broadcast(operands.bias, square);
    if (operands.dense_mask) dense_ = broadcast(operands.dense_mask, square);
    if (operands.slopes) slopes_ = broadcast(operands.slopes, per_head);
    if (operands.sinks) sinks_ = broadcast(operands.sinks, per_head);
    if (operands.key_lengths) lengths_ = broadcast(operands.key_lengths, {batch, 1, 1, 1});
  }

  bool visible(int64_t b, int64_t h, int64_t i, int64_t j) const {
    for (const Mask::Part& part : spec_.mask.parts()) {
      const int64_t at = position(i, part.align);
      switch (part.kind) {
        case Mask::Part::Kind::causal:
          if (j > at) return false;
          break;
        case Mask::Part::Kind::window:
          if (part.left >= 0 && at - j > part.left) return false;
          if (part.right >= 0 && j - at > part.right) return false;
          break;
        case Mask::Part::Kind::key_lengths:
          if (j >= lengths_(b, 0, 0, 0)) return false;
          break;
        case Mask::Part::Kind::dense:
          if (dense_(b, h, i, j) == 0) return false;
          break;
      }
    }
    return true;
  }

  struct Logit {
    double value;
    double slope;  // d value / d (scaled product): what the softcap lets through
  };
  Logit logit(int64_t b, int64_t h, int64_t i, int64_t j) const {
    double product = 0;
    for (int64_t d = 0; d < operands_.q.size[3]; ++d) {
      product += read(operands_.q, b, h, i, d) * read(operands_.k, b, h / group, j, d);
    }
    Logit logit{scale * product, 1.0};
    if (spec_.softcap > 0) {
      const double t = std::tanh(logit.value / spec_.softcap);
      logit = {spec_.softcap * t, 1 - t * t};
    }
    if (bias_) logit.value += bias_(b, h, i, j);
    if (slopes_) logit.value -= slopes_(b, h, 0, 0) * distance(i, j);
    return logit;
  }

  double distance(int64_t i, int64_t j) const {
    return static_cast<double>(std::abs(position(i, spec_.alibi_align) - j));
  }
  // The sink's logit; -inf (no mass) where there is none.
  double sink(int64_t b, int64_t h) const {
    return sinks_ ? sinks_(b, h, 0, 0) : -std::numeric_limits<double>::infinity();
  }
  // What dropout does to a weight: 0, or 1 / (1 - p).
  double dropout_factor(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (!(spec_.dropout > 0)) return 1.0;
    const kernel::Dropout dropout{dropout_threshold(spec_.dropout), operands_.dropout_seed,
                                  operands_.dropout_offset};
    return kernel::kept(dropout, b, h, i, j, 1) != 0 ? 65536.0 / (65536.0 - dropout.threshold) : 0.0;
  }
  bool has_sinks() const { return static_cast<bool>(sinks_); }

 private:
  int64_t position(int64_t i, Align align) const {
    return align == Align::bottom_right ? i + keys - queries : i;
  }

  const Spec& spec_;
  const Operands& operands_;
  View<const float> bias_;
  View<const float> slopes_;
  View<const float> sinks_;
  View<const uint8_t> dense_;
  View<const int64_t> lengths_;
};

}  // namespace regard::attention
