#include "regard/attention/reference.h"

#include <algorithm>

#include "regard/attention/definition.h"

namespace regard::attention {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// ln(sum of exp(logit)) over the visible keys and the sink. NaN and +inf logits make it NaN.
double log_sum_exp(const double* logits, const std::vector<bool>& visible, double sink) {
  double top = sink;
  for (size_t j = 0; j < visible.size(); ++j) {
    if (visible[j]) top = std::max(top, logits[j]);
  }
  double sum = top == kNothing ? 0 : std::exp(sink - top);
  for (size_t j = 0; j < visible.size(); ++j) {
    if (visible[j] && logits[j] != kNothing) sum += std::exp(logits[j] - top);
  }
  return top == kNothing && sum == 0 ? kNothing : top + std::log(sum);
}

}  // namespace

Reference reference(const Spec& spec, const Operands& operands) {
  check_inputs(spec, operands);
  const Definition definition(spec, operands);
  const auto [B, H, Lq, Lk] =
      kernel::Extents{definition.batch, definition.heads, definition.queries, definition.keys};
  const int64_t Dv = operands.v.size[3];
  Reference result;
  element_count("weights", {B, H, Lq, Lk});
  result.out.assign(element_count("out", {B, H, Lq, Dv}), 0.0);
  result.lse.assign(B * H * Lq, kNothing);
  result.logits.assign(B * H * Lq * Lk, kNothing);
  result.weights.assign(B * H * Lq * Lk, 0.0);
  result.entropy.assign(B * H * Lq, 0.0);
  result.column_sums.assign(B * H * Lk, 0.0);
  std::vector<bool> visible(Lk);
  for (int64_t row = 0; row < B * H * Lq; ++row) {
    const int64_t b = row / (H * Lq);
    const int64_t h = row / Lq % H;
    const int64_t i = row % Lq;
    double* logits = result.logits.data() + row * Lk;
    double* weights = result.weights.data() + row * Lk;
    double* sums = result.column_sums.data() + (b * H + h) * Lk;
    for (int64_t j = 0; j < Lk; ++j) {
      visible[j] = definition.visible(b, h, i, j);
      if (visible[j]) logits[j] = definition.logit(b, h, i, j).value;
    }
    const double lse = log_sum_exp(logits, visible, definition.sink(b, h));
    result.lse[row] = lse;
    if (lse == kNothing) continue;  // sees nothing: out 0, entropy 0
    for (int64_t j = 0; j < Lk; ++j) {
      if (!visible[j]) continue;
      weights[j] = std::exp(logits[j] - lse);
      sums[j] += weights[j];
      if (weights[j] != 0) result.entropy[row] -= weights[j] * std::log(weights[j]);
      const double kept = weights[j] * definition.dropout_factor(b, h, i, j);
      for (int64_t d = 0; d < Dv; ++d) {
        result.out[row * Dv + d] += kept * read(operands.v, b, h / definition.group, j, d);
      }
    }
  }
  return result;
}

}  // namespace regard::attention
