#include <cmath>
#include <memory>
#include <new>
#include <vector>

#include "regard/kernel/linear.h"
#include "regard/kernel/self_check.h"

namespace regard::kernel {
namespace {

// Tails everywhere: positions of a chunk, features of keys and values.
constexpr int64_t kLength = 41, kChunk = 18, kDk = 19, kDv = 21;

std::vector<float> numbers(int64_t count, uint32_t seed, float low, float high) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    seed = seed * 1664525U + 1013904223U;
    value = low + (high - low) * static_cast<float>(seed >> 8) * 0x1p-24F;
  }
  return values;
}

bool is_close(const std::vector<float>& got, const std::vector<double>& want) {
  double top = 1e-3;
  for (const double x : want) top = std::max(top, std::abs(x));
  for (size_t i = 0; i < want.size(); ++i)
    if (!(std::abs(static_cast<double>(got[i]) - want[i]) <= 3e-5 * top)) return false;
  return true;
}

// One head of one batch entry, with the sums in float64 beside it.
class LinearCheck {
 public:
  // features: of the decays, 0: none.
  explicit LinearCheck(int64_t features) : decays_(features) {
    problem_.forward.q = View<const float>(q_.data(), {1, 1, kLength, kDk});
    problem_.forward.k = View<const float>(k_.data(), {1, 1, kLength, kDk});
    problem_.forward.v = View<const float>(v_.data(), {1, 1, kLength, kDv});
    problem_.forward.out = View<float>(out_.data(), {1, 1, kLength, kDv});
    if (features > 0)
      problem_.forward.log_decay = {log_decay_.data(), {1, 1, kLength, features}, {0, 0, features, 1}};
  }

  bool forward_is_right(bool delta, int64_t chunk) {
    if (delta) problem_.forward.beta = {beta_.data(), {1, 1, kLength, 1}};
    Serial serial;
    const LinearTiling tiling{chunk};
    const Memory memory(linear_workspace(problem_.forward, tiling, 1));
    linear_forward(problem_.forward, tiling, memory.bytes(), serial);
    std::vector<double> state(kDk * kDv), want;
    for (int64_t t = 0; t < kLength; ++t) {
      for (int64_t n = 0; n < kDv; ++n) {
        double write = at(v_, t, n, kDv);
        for (int64_t f = 0; f < kDk; ++f) {
          double& s = state[static_cast<size_t>(f * kDv + n)];
          s *= std::exp(decay(t, f));
          if (delta) write -= s * at(k_, t, f, kDk);
        }
        if (delta) write *= static_cast<double>(beta_[static_cast<size_t>(t)]);
        double out = 0;
        for (int64_t f = 0; f < kDk; ++f) {
          double& s = state[static_cast<size_t>(f * kDv + n)];
          s += at(k_, t, f, kDk) * write;
          out += at(q_, t, f, kDk) * s;
        }
        want.push_back(out);
      }
    }
    return is_close(out_, want);
  }

  // Without the delta rule: sums over pairs.
  bool backward_is_right() {
    std::vector<float> q(q_.size()), k(k_.size()), v(v_.size());
    problem_.grad_out = View<const float>(grad_out_.data(), {1, 1, kLength, kDv});
    problem_.grad_q = View<float>(q.data(), {1, 1, kLength, kDk});
    problem_.grad_k = View<float>(k.data(), {1, 1, kLength, kDk});
    problem_.grad_v = View<float>(v.data(), {1, 1, kLength, kDv});
    Serial serial;
    const Memory memory(linear_backward_workspace(problem_, {kChunk}, 1));
    linear_backward(problem_, {kChunk}, memory.bytes(), serial);
    std::vector<double> want_q(q.size()), want_k(k.size()), want_v(v.size());
    for (int64_t i = 0; i < kLength; ++i) {
      std::vector<double> reach(kDk, 1.0);  // decay from j to i
      for (int64_t j = i; j >= 0; --j) {
        double grad = 0;
        double weight = 0;
        for (int64_t n = 0; n < kDv; ++n) grad += at(grad_out_, i, n, kDv) * at(v_, j, n, kDv);
        for (int64_t f = 0; f < kDk; ++f) {
          double& decayed = reach[static_cast<size_t>(f)];
          weight += at(q_, i, f, kDk) * at(k_, j, f, kDk) * decayed;
          want_q[static_cast<size_t>(i * kDk + f)] += grad * at(k_, j, f, kDk) * decayed;
          want_k[static_cast<size_t>(j * kDk + f)] += grad * at(q_, i, f, kDk) * decayed;
          decayed *= std::exp(decay(j, f));
        }
        for (int64_t n = 0; n < kDv; ++n)
          want_v[static_cast<size_t>(j * kDv + n)] += weight * at(grad_out_, i, n, kDv);
      }
    }
    return is_close(q, want_q) && is_close(k, want_k) && is_close(v, want_v);
  }

 private:
  class Memory {
   public:
    explicit Memory(size_t size)
        : data_(static_cast<std::byte*>(::operator new (size, std::align_val_t{64}))), size_(size) {}
    ~Memory() { ::operator delete (data_, std::align_val_t{64}); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    std::span<std::byte> bytes() const { return {data_, size_}; }

   private:
    std::byte* data_;
    size_t size_;
  };

  static double at(const std::vector<float>& x, int64_t row, int64_t f, int64_t width) {
    return static_cast<double>(x[static_cast<size_t>(row * width + f)]);
  }
  double decay(int64_t t, int64_t f) const {
    return decays_ == 0 ? 0.0 : at(log_decay_, t, decays_ == 1 ? 0 : f, decays_);
  }

  int64_t decays_;
  const std::vector<float> q_ = numbers(kLength * kDk, 1, -1, 1), k_ = numbers(kLength * kDk, 2, -0.3F, 0.3F),
                           v_ = numbers(kLength * kDv, 3, -1, 1),
                           grad_out_ = numbers(kLength * kDv, 4, -1, 1),
                           log_decay_ = numbers(kLength * kDk, 5, -0.5F, 0),
                           beta_ = numbers(kLength, 6, 0, 1);
  std::vector<float> out_ = std::vector<float>(kLength * kDv);
  LinearBackward problem_;
};

}  // namespace

bool linear_self_check() {
  for (const int64_t features : {int64_t{0}, int64_t{1}, kDk})
    if (!LinearCheck(features).forward_is_right(false, kChunk) ||
        !LinearCheck(features).forward_is_right(true, kChunk) ||
        !LinearCheck(features).forward_is_right(true, 1) || !LinearCheck(features).backward_is_right())
      return false;
  return true;
}

}  // namespace regard::kernel
