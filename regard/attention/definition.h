#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>

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
    if (operands.query_segments) {
      query_segments_ = broadcast(operands.query_segments, {batch, 1, 1, queries});
    }
    if (operands.key_segments) key_segments_ = broadcast(operands.key_segments, {batch, 1, 1, keys});
    if (operands.block_mask) {  // any number of blocks: the sizes are checked
      const kernel::Extents& size = operands.block_mask.size;
      blocks_ = broadcast(operands.block_mask,
                          {batch, heads, size[2] == 1 ? queries : size[2], size[3] == 1 ? keys : size[3]});
    }
  }

  bool visible(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const std::vector<Mask::Term>& terms = spec_.mask.terms();
    return terms.empty() || std::any_of(terms.begin(), terms.end(), [&](const Mask::Term& term) {
             return std::all_of(term.begin(), term.end(), [&](const Mask::Part& part) {
               return std::visit([&](const auto& p) { return allows(p, b, h, i, j); }, part);
             });
           });
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
                                  operands_.dropout_offset, operands_.dropout_first_batch};
    return kernel::kept(dropout, b, h, i, j, 1) != 0 ? 65536.0 / (65536.0 - dropout.threshold) : 0.0;
  }
  bool has_sinks() const { return static_cast<bool>(sinks_); }

 private:
  int64_t position(int64_t i, Align align) const {
    return align == Align::bottom_right ? i + keys - queries : i;
  }

  bool allows(const part::Causal& p, int64_t, int64_t, int64_t i, int64_t j) const {
    return j <= position(i, p.align);
  }
  bool allows(const part::Window& p, int64_t, int64_t, int64_t i, int64_t j) const {
    const int64_t distance = j - position(i, p.align);
    return (p.left < 0 || -distance <= p.left) && (p.right < 0 || distance <= p.right);
  }
  bool allows(const part::Prefix& p, int64_t, int64_t, int64_t, int64_t j) const { return j < p.count; }
  bool allows(const part::FirstRows& p, int64_t, int64_t, int64_t i, int64_t) const { return i < p.count; }
  bool allows(const part::Stride& p, int64_t, int64_t, int64_t i, int64_t j) const {
    return (position(i, p.align) - j) % p.period == 0;
  }
  bool allows(const part::SameBlock& p, int64_t, int64_t, int64_t i, int64_t j) const {
    return floor_div(position(i, p.align), p.size) == j / p.size;
  }
  bool allows(const part::BlockTail& p, int64_t, int64_t, int64_t, int64_t j) const {
    return j % p.size >= p.size - p.tail;
  }
  bool allows(const part::KeyLengths&, int64_t b, int64_t, int64_t, int64_t j) const {
    return j < lengths_(b, 0, 0, 0);
  }
  bool allows(const part::Segments&, int64_t b, int64_t, int64_t i, int64_t j) const {
    return query_segments_(b, 0, 0, i) == key_segments_(b, 0, 0, j);
  }
  bool allows(const part::Blocks& p, int64_t b, int64_t h, int64_t i, int64_t j) const {
    return blocks_(b, h, i / p.rows, j / p.keys) != 0;
  }
  bool allows(const part::Dense&, int64_t b, int64_t h, int64_t i, int64_t j) const {
    return dense_(b, h, i, j) != 0;
  }
  bool allows(const part::Neighbourhood& p, int64_t, int64_t, int64_t i, int64_t j) const {
    return is_neighbour(i / p.width, j / p.width, p.height, p.kernel_y, p.dilation, p.border) &&
           is_neighbour(i % p.width, j % p.width, p.width, p.kernel_x, p.dilation, p.border);
  }
  // Along one axis: only places of the query's residue class modulo the dilation count; among these the
  // window begins kernel / 2 before the query, and, if it shifts, stays within the class.
  static bool is_neighbour(int64_t query, int64_t key, int64_t size, int64_t kernel, int64_t dilation,
                           Border border) {
    if (query % dilation != key % dilation) return false;
    int64_t places = 0;  // of the class
    for (int64_t at = query % dilation; at < size; at += dilation) ++places;
    int64_t begin = query / dilation - kernel / 2;
    if (border == Border::shift) begin = std::max<int64_t>(0, std::min(begin, places - kernel));
    return key / dilation >= begin && key / dilation < begin + kernel;
  }
  static int64_t floor_div(int64_t a, int64_t n) { return a >= 0 ? a / n : -((-a + n - 1) / n); }

  const Spec& spec_;
  const Operands& operands_;
  View<const float> bias_;
  View<const float> slopes_;
  View<const float> sinks_;
  View<const uint8_t> dense_;
  View<const int64_t> lengths_;
  View<const int32_t> query_segments_;
  View<const int32_t> key_segments_;
  View<const uint8_t> blocks_;
};

}  // namespace regard::attention
