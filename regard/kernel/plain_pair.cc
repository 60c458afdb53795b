#include "regard/kernel/plain_pair.h"

#include <cmath>

#include "regard/kernel/rows.h"

namespace regard::kernel {

void add_plain_pair(const Backward& problem, const PlainPair& pair) {
  const Forward& p = problem.forward;
  const int64_t b = pair.batch;
  const int64_t h = pair.head;
  const int64_t kv = h / (p.q.size[1] / p.k.size[1]);
  for (int64_t r = 0; r < pair.rows; ++r) {
    const int64_t i = pair.row + r;
    const double lse = p.lse(b, h, i, 0);
    if (lse == -HUGE_VAL) continue;  // sees nothing
    for (int64_t c = 0; c < pair.keys; ++c) {
      const int64_t j = pair.key + c;
      if (!sees(p, b, h, i, j)) continue;
      double logit = 0.0;
      for (int64_t f = 0; f < p.q.size[3]; ++f)
        logit += static_cast<double>(element(p.q, b, h, i, f)) * element(p.k, b, kv, j, f);
      logit *= p.scale;
      double slope = 1.0;
      if (p.softcap > 0.0F) {
        const double t = std::tanh(logit / p.softcap);
        logit = p.softcap * t;
        slope = 1.0 - t * t;
      }
      if (p.score) {
        auto score = static_cast<float>(logit);
        float derivative = 0.0F;
        p.score.apply(p.score.self, b, h, i, 1, j, 1, 1, &score, &derivative);
        logit = score;
        slope *= derivative;
      }
      const auto distance = static_cast<double>(std::abs(i + p.alibi_offset - j));
      if (p.bias) logit += p.bias(b, h, i, j);
      if (p.slopes) logit -= p.slopes(b, h, 0, 0) * distance;
      double product = 0.0;
      for (int64_t f = 0; f < p.v.size[3]; ++f)
        product += static_cast<double>(element(problem.grad_out, b, h, i, f)) * element(p.v, b, kv, j, f);
      const double weight = std::exp(logit - lse);
      double kept_weight = weight;
      if (p.dropout) kept_weight = kept(p.dropout, b, h, i, j, 1) != 0 ? weight * p.dropout.scale() : 0.0;
      const double grad_logit = kept_weight * product - weight * pair.delta[r];
      if (problem.grad_bias) problem.grad_bias(b, h, i, j) += static_cast<float>(grad_logit);
      if (pair.slope_sum != nullptr) *pair.slope_sum -= grad_logit * distance;
      const double grad_product = grad_logit * slope;
      if (pair.grad_q.data != nullptr)
        for (int64_t f = 0; f < p.q.size[3]; ++f)
          pair.grad_q(r, f) += static_cast<float>(grad_product * element(p.k, b, kv, j, f));
      if (pair.grad_k.data != nullptr)
        for (int64_t f = 0; f < p.q.size[3]; ++f)
          pair.grad_k(c, f) += static_cast<float>(grad_product * pair.q_factor * element(p.q, b, h, i, f));
      if (pair.grad_v.data != nullptr)
        for (int64_t f = 0; f < p.v.size[3]; ++f)
          pair.grad_v(c, f) += static_cast<float>(kept_weight * element(problem.grad_out, b, h, i, f));
    }
  }
}

}  // namespace regard::kernel
