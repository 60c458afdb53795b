#include <cmath>
#include <limits>

#include "regard/attention/additive.h"
#include "regard/attention/definition.h"

namespace regard::attention {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

}  // namespace

Reference additive_reference(const Spec& spec, const Operands& operands, View<const float> vector) {
  check_inputs(spec, operands);
  check_additive(spec, operands, vector);
  const Definition definition(spec, operands);
  const auto [B, H, Lq, Lk] =
      kernel::Extents{definition.batch, definition.heads, definition.queries, definition.keys};
  const int64_t Da = operands.q.size[3];
  const int64_t Dv = operands.v.size[3];
  const View<const float> a = broadcast(vector, {B, H, 1, Da});
  Reference result;
  result.out.assign(element_count("out", {B, H, Lq, Dv}), 0.0);
  result.lse.assign(B * H * Lq, kNothing);
  result.logits.assign(element_count("logits", {B, H, Lq, Lk}), kNothing);
  result.weights.assign(B * H * Lq * Lk, 0.0);
  result.entropy.assign(B * H * Lq, 0.0);
  result.column_sums.assign(B * H * Lk, 0.0);
  for (int64_t row = 0; row < B * H * Lq; ++row) {
    const int64_t b = row / (H * Lq);
    const int64_t h = row / Lq % H;
    const int64_t i = row % Lq;
    double* logits = result.logits.data() + row * Lk;
    double top = kNothing;
    bool none = true;
    for (int64_t j = 0; j < Lk; ++j) {
      if (!definition.visible(b, h, i, j)) continue;
      none = false;
      logits[j] = 0;
      for (int64_t f = 0; f < Da; ++f) {
        logits[j] +=
            static_cast<double>(a(b, h, 0, f)) *
            std::tanh(read(operands.q, b, h, i, f) + read(operands.k, b, h / definition.group, j, f));
      }
      top = std::max(top, logits[j]);
    }
    if (none) continue;
    double sum = 0;
    for (int64_t j = 0; j < Lk; ++j) sum += definition.visible(b, h, i, j) ? std::exp(logits[j] - top) : 0.0;
    result.lse[row] = top + std::log(sum);
    for (int64_t j = 0; j < Lk; ++j) {
      if (!definition.visible(b, h, i, j)) continue;
      const double p = std::exp(logits[j] - result.lse[row]);
      result.weights[row * Lk + j] = p;
      result.column_sums[(b * H + h) * Lk + j] += p;
      if (p != 0) result.entropy[row] -= p * std::log(p);
      for (int64_t d = 0; d < Dv; ++d) {
        result.out[row * Dv + d] += p * read(operands.v, b, h / definition.group, j, d);
      }
    }
  }
  return result;
}

// ds = p (dp - sum of p dp + grad_lse); d tanh = 1 - tanh^2 goes to q and k alike.
AdditiveReferenceGradients additive_reference_backward(const Spec& spec, const Operands& operands,
                                                       View<const float> vector,
                                                       const std::vector<double>& grad_out,
                                                       const std::vector<double>& grad_lse) {
  const Reference forward = additive_reference(spec, operands, vector);
  const Definition definition(spec, operands);
  const auto [B, H, Lq, Lk] =
      kernel::Extents{definition.batch, definition.heads, definition.queries, definition.keys};
  const int64_t Da = operands.q.size[3];
  const int64_t Dv = operands.v.size[3];
  const int64_t Hkv = operands.k.size[1];
  const View<const float> a = broadcast(vector, {B, H, 1, Da});
  AdditiveReferenceGradients grad;
  grad.q.assign(B * H * Lq * Da, 0.0);
  grad.k.assign(B * Hkv * Lk * Da, 0.0);
  grad.v.assign(B * Hkv * Lk * Dv, 0.0);
  grad.vector.assign(B * H * Da, 0.0);
  std::vector<double> dp(Lk);
  for (int64_t row = 0; row < B * H * Lq; ++row) {
    if (forward.lse[row] == kNothing) continue;
    const int64_t b = row / (H * Lq);
    const int64_t h = row / Lq % H;
    const int64_t i = row % Lq;
    const int64_t kv = h / definition.group;
    const double* p = forward.weights.data() + row * Lk;
    const double* go = grad_out.data() + row * Dv;
    double sum = 0;
    for (int64_t j = 0; j < Lk; ++j) {
      dp[j] = 0;
      if (!definition.visible(b, h, i, j)) continue;
      for (int64_t d = 0; d < Dv; ++d) {
        dp[j] += go[d] * read(operands.v, b, kv, j, d);
        grad.v[((b * Hkv + kv) * Lk + j) * Dv + d] += p[j] * go[d];
      }
      sum += p[j] * dp[j];
    }
    for (int64_t j = 0; j < Lk; ++j) {
      if (!definition.visible(b, h, i, j)) continue;
      const double ds = p[j] * (dp[j] - sum + (grad_lse.empty() ? 0.0 : grad_lse[row]));
      for (int64_t f = 0; f < Da; ++f) {
        const double t = std::tanh(read(operands.q, b, h, i, f) + read(operands.k, b, kv, j, f));
        const double through = ds * static_cast<double>(a(b, h, 0, f)) * (1 - t * t);
        grad.vector[(b * H + h) * Da + f] += ds * t;
        grad.q[row * Da + f] += through;
        grad.k[((b * Hkv + kv) * Lk + j) * Da + f] += through;
      }
    }
  }
  return grad;
}

}  // namespace regard::attention
