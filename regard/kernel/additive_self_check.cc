#include <cmath>
#include <vector>

#include "regard/kernel/additive.h"
#include "regard/kernel/check_numbers.h"
#include "regard/kernel/self_check.h"

namespace regard::kernel {
namespace {

using check::dot;
using check::numbers;
using check::wide;
using Doubles = std::vector<double>;

// Tails everywhere: rows, keys, features; two query heads of one key/value head.
constexpr int64_t kHeads = 2, kRows = 13, kKeys = 37, kDk = 11, kDv = 18;
constexpr check::SeenBehind kSeen{kKeys, kKeys - kRows};

struct Result {
  Doubles out, lse;
};

Result plain(const Doubles& q, const Doubles& k, const Doubles& v, const Doubles& vector) {
  Result result;
  for (int64_t h = 0; h < kHeads; ++h)
    for (int64_t i = 0; i < kRows; ++i) {
      Doubles row(kDv);
      double sum = 0;
      for (int64_t j = 0; j < kSeen.end(i); ++j) {
        double score = 0;
        for (int64_t f = 0; f < kDk; ++f)
          score += vector[static_cast<size_t>(h * kDk + f)] *
                   std::tanh(q[static_cast<size_t>((h * kRows + i) * kDk + f)] +
                             k[static_cast<size_t>(j * kDk + f)]);
        const double weight = std::exp(score);
        sum += weight;
        for (size_t n = 0; n < row.size(); ++n) row[n] += weight * v[static_cast<size_t>(j * kDv) + n];
      }
      for (const double x : row) result.out.push_back(x / sum);
      result.lse.push_back(std::log(sum));
    }
  return result;
}

}  // namespace

bool additive_self_check() {
  const std::vector<float> q = numbers(kHeads * kRows * kDk, 1), k = numbers(kKeys * kDk, 2),
                           v = numbers(kKeys * kDv, 3), vector = numbers(kHeads * kDk, 4),
                           grad_out = numbers(kHeads * kRows * kDv, 5), grad_lse = numbers(kHeads * kRows, 6);
  std::vector<float> out(grad_out.size()), lse(grad_lse.size()), grad_q(q.size()), grad_k(k.size()),
      grad_v(v.size()), grad_vector(vector.size());
  AdditiveBackward problem;
  Additive& additive_problem = problem.additive;
  Forward& p = additive_problem.forward;
  p.q = View<const float>(q.data(), {1, kHeads, kRows, kDk});
  p.k = View<const float>(k.data(), {1, 1, kKeys, kDk});
  p.v = View<const float>(v.data(), {1, 1, kKeys, kDv});
  p.out = View<float>(out.data(), {1, kHeads, kRows, kDv});
  p.lse = View<float>(lse.data(), {1, kHeads, kRows, 1});
  p.mask = tile_mask_of(kSeen);
  additive_problem.vector = View<const float>(vector.data(), {1, kHeads, 1, kDk});
  problem.grad_out = View<const float>(grad_out.data(), {1, kHeads, kRows, kDv});
  problem.grad_lse = View<const float>(grad_lse.data(), {1, kHeads, kRows, 1});
  problem.grad_q = View<float>(grad_q.data(), {1, kHeads, kRows, kDk});
  problem.grad_k = View<float>(grad_k.data(), {1, 1, kKeys, kDk});
  problem.grad_v = View<float>(grad_v.data(), {1, 1, kKeys, kDv});
  problem.grad_vector = View<float>(grad_vector.data(), {1, kHeads, 1, kDk});
  Serial serial;
  additive(additive_problem, check::Memory(additive_workspace(additive_problem, 1)).bytes(), serial);
  const Doubles q_is = wide(q), k_is = wide(k), v_is = wide(v), vector_is = wide(vector);
  const Result want = plain(q_is, k_is, v_is, vector_is);
  if (!check::is_close(out, want.out) || !check::is_close(lse, want.lse)) return false;
  additive_backward(problem, check::Memory(additive_backward_workspace(problem, 1)).bytes(), serial);
  const auto loss = [&](const Result& r) { return dot(r.out, grad_out) + dot(r.lse, grad_lse); };
  return check::is_gradient(grad_q, q,
                            [&](const Doubles& x) { return loss(plain(x, k_is, v_is, vector_is)); }) &&
         check::is_gradient(grad_k, k,
                            [&](const Doubles& x) { return loss(plain(q_is, x, v_is, vector_is)); }) &&
         check::is_gradient(grad_v, v,
                            [&](const Doubles& x) { return loss(plain(q_is, k_is, x, vector_is)); }) &&
         check::is_gradient(grad_vector, vector,
                            [&](const Doubles& x) { return loss(plain(q_is, k_is, v_is, x)); });
}

}  // namespace regard::kernel
