#include <stdexcept>
#include <string>

#include "regard/attention/definition.h"
#include "regard/attention/reference.h"

namespace regard::attention {
namespace {

void check_gradient(const char* name, size_t given, int64_t wanted, const char* axes) {
  if (given != static_cast<size_t>(wanted)) {
    throw std::invalid_argument("reference_backward: " + std::string(name) + " has " + std::to_string(given) +
                                " elements; allowed: " + axes + " = " + std::to_string(wanted));
  }
}

}  // namespace

// With p the weights, s the logits and D = sum of p dp over the keys (equal to grad_out . out):
// dv += p grad_out, dp = grad_out . v, ds = p (dp - D + grad_lse); the sink is one more logit whose dp is 0.
// Dropout multiplies p in dv and dp alike.
ReferenceGradients reference_backward(const Spec& spec, const Operands& operands,
                                      const std::vector<double>& grad_out,
                                      const std::vector<double>& grad_lse) {
  const Reference forward = reference(spec, operands);
  const Definition definition(spec, operands);
  const auto [B, H, Lq, Lk] =
      kernel::Extents{definition.batch, definition.heads, definition.queries, definition.keys};
  const int64_t Dk = operands.q.size[3];
  const int64_t Dv = operands.v.size[3];
  const int64_t Hkv = operands.k.size[1];
  check_gradient("grad_out", grad_out.size(), B * H * Lq * Dv, "B * Hq * Lq * Dv");
  if (!grad_lse.empty()) check_gradient("grad_lse", grad_lse.size(), B * H * Lq, "B * Hq * Lq");
  ReferenceGradients grad;
  grad.q.assign(B * H * Lq * Dk, 0.0);
  grad.k.assign(B * Hkv * Lk * Dk, 0.0);
  grad.v.assign(B * Hkv * Lk * Dv, 0.0);
  grad.bias.assign(B * H * Lq * Lk, 0.0);
  if (operands.slopes) grad.slopes.assign(B * H, 0.0);
  if (operands.sinks) grad.sinks.assign(B * H, 0.0);
  std::vector<double> dp(Lk);
  for (int64_t row = 0; row < B * H * Lq; ++row) {
    const int64_t b = row / (H * Lq);
    const int64_t h = row / Lq % H;
    const int64_t i = row % Lq;
    const double lse = forward.lse[row];
    if (std::isinf(lse) && lse < 0) continue;  // sees nothing
    const int64_t kv = h / definition.group;
    const double* p = forward.weights.data() + row * Lk;
    const double* go = grad_out.data() + row * Dv;
    const double dl = grad_lse.empty() ? 0.0 : grad_lse[row];
    double sum = 0;  // D
    for (int64_t j = 0; j < Lk; ++j) {
      if (!definition.visible(b, h, i, j)) continue;
      double* dv = grad.v.data() + ((b * Hkv + kv) * Lk + j) * Dv;
      dp[j] = 0;
      const double factor = definition.dropout_factor(b, h, i, j);
      for (int64_t d = 0; d < Dv; ++d) {
        dp[j] += go[d] * read(operands.v, b, kv, j, d);
        dv[d] += p[j] * factor * go[d];
      }
      dp[j] *= factor;
      sum += p[j] * dp[j];
    }
    for (int64_t j = 0; j < Lk; ++j) {
      if (!definition.visible(b, h, i, j)) continue;
      const double ds = p[j] * (dp[j] - sum + dl);
      grad.bias[row * Lk + j] = ds;
      if (operands.slopes) grad.slopes[b * H + h] -= ds * definition.distance(i, j);
      const double scaled = ds * definition.logit(b, h, i, j).slope * definition.scale;
      double* dq = grad.q.data() + row * Dk;
      double* dk = grad.k.data() + ((b * Hkv + kv) * Lk + j) * Dk;
      for (int64_t d = 0; d < Dk; ++d) {
        dq[d] += scaled * read(operands.k, b, kv, j, d);
        dk[d] += scaled * read(operands.q, b, h, i, d);
      }
    }
    if (operands.sinks) grad.sinks[b * H + h] += std::exp(definition.sink(b, h) - lse) * (dl - sum);
  }
  return grad;
}

}  // namespace regard::attention
