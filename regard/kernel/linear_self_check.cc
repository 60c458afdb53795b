#include <cmath>
#include <vector>

#include "regard/kernel/check_numbers.h"
#include "regard/kernel/linear.h"
#include "regard/kernel/self_check.h"

namespace regard::kernel {
namespace {

// Tails everywhere: positions of a chunk, features of keys and values.
constexpr int64_t kLength = 41, kChunk = 18, kDk = 19, kDv = 21;

using check::numbers;
using check::wide;
using Doubles = std::vector<double>;

// One head of one batch entry, beside the recurrence in float64.
class LinearCheck {
 public:
  // features: of the decays, 0: none.
  LinearCheck(int64_t features, bool delta) : decays_(features), delta_(delta) {
    Linear& p = problem_.forward;
    p.q = View<const float>(q_.data(), {1, 1, kLength, kDk});
    p.k = View<const float>(k_.data(), {1, 1, kLength, kDk});
    p.v = View<const float>(v_.data(), {1, 1, kLength, kDv});
    p.out = View<float>(out_.data(), {1, 1, kLength, kDv});
    if (features > 0) p.log_decay = {log_decay_.data(), {1, 1, kLength, features}, {0, 0, features, 1}};
    if (delta) p.beta = {beta_.data(), {1, 1, kLength, 1}};
  }

  bool forward_is_right(int64_t chunk) {
    Serial serial;
    const check::Memory memory(linear_workspace(problem_.forward, {chunk}, 1));
    linear_forward(problem_.forward, {chunk}, memory.bytes(), serial);
    return check::is_close(out_, plain(wide(q_), wide(k_), wide(v_), wide(log_decay_), wide(beta_)));
  }

  bool backward_is_right() {
    std::vector<float> q(q_.size()), k(k_.size()), v(v_.size()), decay(log_decay_.size()), beta(beta_.size());
    problem_.grad_out = View<const float>(grad_out_.data(), {1, 1, kLength, kDv});
    problem_.grad_q = View<float>(q.data(), {1, 1, kLength, kDk});
    problem_.grad_k = View<float>(k.data(), {1, 1, kLength, kDk});
    problem_.grad_v = View<float>(v.data(), {1, 1, kLength, kDv});
    if (decays_ > 0) problem_.grad_log_decay = View<float>(decay.data(), {1, 1, kLength, decays_});
    if (delta_) problem_.grad_beta = View<float>(beta.data(), {1, 1, kLength, 1});
    Serial serial;
    const check::Memory memory(linear_backward_workspace(problem_, {kChunk}, 1));
    linear_backward(problem_, {kChunk}, memory.bytes(), serial);
    // `which` operand is x.
    const auto is_right = [&](int which, const std::vector<float>& grad, const std::vector<float>& at) {
      return check::is_gradient(grad, at, [&](const Doubles& x) {
        const auto operand = [&](int n, const std::vector<float>& is) { return n == which ? x : wide(is); };
        return check::dot(
            plain(operand(0, q_), operand(1, k_), operand(2, v_), operand(3, log_decay_), operand(4, beta_)),
            grad_out_);
      });
    };
    return is_right(0, q, q_) && is_right(1, k, k_) && is_right(2, v, v_) &&
           (decays_ == 0 || is_right(3, decay, log_decay_)) && (!delta_ || is_right(4, beta, beta_));
  }

 private:
  Doubles plain(const Doubles& q, const Doubles& k, const Doubles& v, const Doubles& log_decay,
                const Doubles& beta) const {
    const auto at = [](const Doubles& x, int64_t row, int64_t f, int64_t width) {
      return x[static_cast<size_t>(row * width + f)];
    };
    Doubles state(kDk * kDv), out;
    for (int64_t t = 0; t < kLength; ++t) {
      Doubles decayed;
      for (int64_t f = 0; f < kDk; ++f)
        decayed.push_back(decays_ == 0 ? 1.0 : std::exp(at(log_decay, t, decays_ == 1 ? 0 : f, decays_)));
      for (int64_t n = 0; n < kDv; ++n) {
        double write = at(v, t, n, kDv);
        for (int64_t f = 0; f < kDk; ++f) {
          double& s = state[static_cast<size_t>(f * kDv + n)];
          s *= decayed[static_cast<size_t>(f)];
          if (delta_) write -= s * at(k, t, f, kDk);
        }
        if (delta_) write *= beta[static_cast<size_t>(t)];
        double sum = 0;
        for (int64_t f = 0; f < kDk; ++f) {
          double& s = state[static_cast<size_t>(f * kDv + n)];
          s += at(k, t, f, kDk) * write;
          sum += at(q, t, f, kDk) * s;
        }
        out.push_back(sum);
      }
    }
    return out;
  }

  int64_t decays_;
  bool delta_;
  const std::vector<float> q_ = numbers(kLength * kDk, 1), k_ = numbers(kLength * kDk, 2, -0.3F, 0.3F),
                           v_ = numbers(kLength * kDv, 3), grad_out_ = numbers(kLength * kDv, 4),
                           log_decay_ = numbers(kLength * std::max(decays_, int64_t{1}), 5, -0.5F, 0),
                           beta_ = numbers(kLength, 6, 0, 1);
  std::vector<float> out_ = std::vector<float>(kLength * kDv);
  LinearBackward problem_;
};

}  // namespace

bool linear_self_check() {
  for (const int64_t features : {int64_t{0}, int64_t{1}, kDk})
    for (const bool delta : {false, true}) {
      LinearCheck check(features, delta);
      if (!check.forward_is_right(kChunk) || !check.forward_is_right(1) || !check.backward_is_right())
        return false;
    }
  return true;
}

}  // namespace regard::kernel
