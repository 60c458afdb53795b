#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

// Softmax of one row in float64, and what is said of a row of weights.
namespace regard::lab {

inline std::vector<double> softmax(std::span<const double> logits, double factor = 1) {
  std::vector<double> out(logits.size());
  double most = -INFINITY;
  for (const double logit : logits) most = std::max(most, factor * logit);
  double sum = 0;
  for (size_t i = 0; i < out.size(); ++i) sum += out[i] = std::exp(factor * logits[i] - most);
  for (double& weight : out) weight /= sum;
  return out;
}

// -sum p ln p, in nats.
inline double entropy(std::span<const double> weights) {
  double sum = 0;
  for (const double weight : weights) sum -= weight > 0 ? weight * std::log(weight) : 0;
  return sum;
}

// Of the Jacobian diag(p) - p p^T: 1 - sum p^2, as a sum of terms that are not negative.
inline double jacobian_trace(std::span<const double> weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight * (1 - weight);
  return sum;
}

inline double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
inline double norm(std::span<const double> a) {
  return std::sqrt(dot(a, a));
}

}  // namespace regard::lab
