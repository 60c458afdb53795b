#include "regard/kernel/self_check.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "regard/kernel/backward.h"
#include "regard/kernel/check_numbers.h"
#include "regard/kernel/forward.h"
#include "regard/kernel/packed_product.h"
#include "regard/kernel/quantized.h"

namespace regard::kernel {
namespace {

// Sizes that leave tails everywhere: rows, keys, features.
constexpr int64_t kHeads = 4, kKvHeads = 2, kRows = 13, kKeys = 70, kDk = 20, kDv = 18;
constexpr float kScale = 0.25F;

constexpr check::SeenBehind kSeen{kKeys, kKeys - kRows};

template <class T>
std::vector<T> numbers(int64_t count, uint32_t seed) {
  std::vector<T> values;
  for (const float x : check::numbers(count, seed)) {
    if constexpr (sizeof(T) == 4)
      values.push_back(x);
    else if constexpr (sizeof(T) == 1)
      values.push_back(static_cast<T>(x * 127));
    else if constexpr (dtype_of<T>::value == DType::bf16)
      values.push_back(to_bf16(x));
    else
      values.push_back(to_f16(x));
  }
  return values;
}

bool near(double got, double want) {
  return std::abs(got - want) < 1e-5;  // of numbers around 1; false for a NaN
}

// One small problem in one type, its gradients, and the same in double by the definition. int8: keys and
// values come in pages, with scales, and there are no gradients.
template <class T>
class Problem {
  static constexpr bool kPaged = sizeof(T) == 1;
  using Query = std::conditional_t<kPaged, float, T>;

 public:
  Problem() {
    p_.q = View<const Query>(q_.data(), {1, kHeads, kRows, kDk});
    if constexpr (kPaged) {
      p_.k.size = {1, kKvHeads, kKeys, kDk};
      p_.v.size = {1, kKvHeads, kKeys, kDv};
      p_.pages.type = CacheType::i8;
      p_.pages.k = pool(k_, k_scales_, kDk);
      p_.pages.v = pool(v_, v_scales_, kDv);
      p_.pages.table32 = table_.data();
      p_.pages.table_size = p_.pages.table_stride = kPages;
      p_.pages.lengths = &kKeys;
    } else {
      p_.k = View<const T>(k_.data(), {1, kKvHeads, kKeys, kDk});
      p_.v = View<const T>(v_.data(), {1, kKvHeads, kKeys, kDv});
    }
    p_.out = out_.view();
    p_.lse = lse_.view();
    p_.scale = kScale;
    p_.mask = tile_mask_of(kSeen);
  }

  bool forward_is_right(ForwardTiling::Kind kind) {
    ForwardTiling tiling;
    tiling.kind = kind;
    tiling.split_keys = 64;
    const check::Memory workspace(forward_workspace(p_, tiling, 1));
    Serial serial;
    forward(p_, tiling, workspace.bytes(), serial);
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t i = 0; i < kRows; ++i) {
        const Row row(*this, h, i);
        if (!near(lse_(h, i, 0), std::log(row.sum))) return false;
        for (int64_t d = 0; d < kDv; ++d)
          if (!near(out_(h, i, d), row.out[static_cast<size_t>(d)])) return false;
      }
    return true;
  }

  // After forward_is_right(), with its lse.
  bool weights_are_right() {
    std::vector<float> tile(kRows * kKeys);
    for (int64_t h = 0; h < kHeads; ++h) {
      weights_tile(p_, lse_.view(), 0, h, 0, kRows, 0, kKeys, tile.data());
      for (int64_t i = 0; i < kRows; ++i) {
        Row row(*this, h, i);
        row.weights.resize(kKeys);
        for (size_t j = 0; j < row.weights.size(); ++j)
          if (!near(tile[static_cast<size_t>(i * kKeys) + j], row.weights[j] / row.sum)) return false;
      }
    }
    return true;
  }

  // What a prefill tells about its weights, which are what forward_is_right() made of them.
  bool observation_is_right() {
    constexpr int64_t kTop = 3;
    Numbers entropy(kHeads, kRows, 1), columns(kHeads, kKeys, 1), top(kHeads, kRows, kTop);
    std::vector<int64_t> keys(kHeads * kRows * kTop);
    Observation& observe = p_.observe;
    observe.entropy = entropy.view();
    observe.column_sums = columns.view();
    observe.top_weights = top.view();
    observe.top_keys = View<int64_t>(keys.data(), {1, kHeads, kRows, kTop});
    const bool same = forward_is_right(ForwardTiling::Kind::prefill);
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t i = 0; i < kRows; ++i) {
        Row row(*this, h, i);
        double wanted = 0;
        for (size_t j = 0; j < row.weights.size(); ++j) {
          const double weight = row.weights[j] / row.sum;
          wanted -= weight * std::log(weight);
          columns(h, static_cast<int64_t>(j), 0) -= static_cast<float>(weight);
        }
        entropy(h, i, 0) -= static_cast<float>(wanted);
        for (int64_t n = 0; n < kTop; ++n) {
          const auto best = std::max_element(row.weights.begin(), row.weights.end());
          top(h, i, n) -= static_cast<float>(*best / row.sum);
          if (observe.top_keys(0, h, i, n) != best - row.weights.begin()) return false;
          *best = 0;
        }
      }
    observe = {};
    return same && entropy.are_zero() && columns.are_zero() && top.are_zero();
  }

  // After forward_is_right(): out and lse are inputs.
  bool backward_is_right() {
    Numbers grad_q(kHeads, kRows, kDk), grad_k(kKvHeads, kKeys, kDk), grad_v(kKvHeads, kKeys, kDv);
    Backward b;
    b.forward = p_;
    b.grad_out = View<const float>(grad_out_.data(), {1, kHeads, kRows, kDv});
    b.grad_q = grad_q.view();
    b.grad_k = grad_k.view();
    b.grad_v = grad_v.view();
    const BackwardTiling tiling = choose_backward_tiling(b);
    const check::Memory workspace(backward_workspace(b, tiling, 1));
    Serial serial;
    backward(b, tiling, workspace.bytes(), serial);
    subtract_wanted(grad_q, grad_k, grad_v);
    return grad_q.are_zero() && grad_k.are_zero() && grad_v.are_zero();
  }

 private:
  struct Numbers {
    int64_t heads, rows, columns;
    std::vector<float> values;

    Numbers(int64_t heads, int64_t rows, int64_t columns)
        : heads(heads), rows(rows), columns(columns), values(static_cast<size_t>(heads * rows * columns)) {}
    View<float> view() { return {values.data(), {1, heads, rows, columns}}; }
    float& operator()(int64_t h, int64_t i, int64_t d) {
      return values[static_cast<size_t>((h * rows + i) * columns + d)];
    }
    bool are_zero() const {
      return std::all_of(values.begin(), values.end(), [](float x) { return near(x, 0); });
    }
  };

  // Weights (not yet divided by their sum) and output of one query row.
  struct Row {
    std::vector<double> weights;
    std::vector<double> out = std::vector<double>(kDv);
    double sum = 0;

    Row(const Problem& p, int64_t h, int64_t i) {
      for (int64_t j = 0; j <= i + kKeys - kRows; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < kDk; ++d) dot += p.q(h, i, d) * p.k(h, j, d);
        weights.push_back(std::exp(dot * kScale));
        sum += weights.back();
        for (int64_t d = 0; d < kDv; ++d) out[static_cast<size_t>(d)] += weights.back() * p.v(h, j, d);
      }
      for (double& x : out) x /= sum;
    }
  };

  void subtract_wanted(Numbers& grad_q, Numbers& grad_k, Numbers& grad_v) const {
    std::vector<double> wanted_k(grad_k.values.size()), wanted_v(grad_v.values.size());
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t i = 0; i < kRows; ++i) {
        const Row row(*this, h, i);
        const float* grad = grad_out_.data() + (h * kRows + i) * kDv;
        std::vector<double> wanted_q(kDk);
        for (size_t j = 0; j < row.weights.size(); ++j) {
          const auto key = static_cast<int64_t>(j);
          const double weight = row.weights[j] / row.sum;
          double slope = 0;  // of the logit
          for (int64_t d = 0; d < kDv; ++d) {
            slope += weight * grad[d] * (v(h, key, d) - row.out[static_cast<size_t>(d)]);
            wanted_v[static_cast<size_t>((h / 2 * kKeys + key) * kDv + d)] += weight * grad[d];
          }
          for (int64_t d = 0; d < kDk; ++d) {
            wanted_q[static_cast<size_t>(d)] += kScale * slope * k(h, key, d);
            wanted_k[static_cast<size_t>((h / 2 * kKeys + key) * kDk + d)] += kScale * slope * q(h, i, d);
          }
        }
        for (int64_t d = 0; d < kDk; ++d)
          grad_q(h, i, d) -= static_cast<float>(wanted_q[static_cast<size_t>(d)]);
      }
    for (size_t at = 0; at < wanted_k.size(); ++at) grad_k.values[at] -= static_cast<float>(wanted_k[at]);
    for (size_t at = 0; at < wanted_v.size(); ++at) grad_v.values[at] -= static_cast<float>(wanted_v[at]);
  }

  // The rows of a head, kPageUnit after kPageUnit, as pages; of the last one the head's end is all that is
  // read.
  static PagePool pool(const std::vector<T>& values, const std::vector<float>& scales, int64_t features) {
    const Extents size{kPages, kKvHeads, kPageUnit, features};
    return {values.data(),
            size,
            {kPageUnit * features, kKeys * features, features, 1},
            View<const float>(scales.data(), {kPages, kKvHeads, kPageUnit, 1}, {kPageUnit, kKeys, 1, 1})};
  }
  static double scale(const std::vector<float>& scales, int64_t h, int64_t j) {
    return kPaged ? scales[static_cast<size_t>(h / 2 * kKeys + j)] : 1.0F;
  }

  double q(int64_t h, int64_t i, int64_t d) const { return number(q_, (h * kRows + i) * kDk + d); }
  double k(int64_t h, int64_t j, int64_t d) const {
    return number(k_, (h / 2 * kKeys + j) * kDk + d) * scale(k_scales_, h, j);
  }
  double v(int64_t h, int64_t j, int64_t d) const {
    return number(v_, (h / 2 * kKeys + j) * kDv + d) * scale(v_scales_, h, j);
  }
  template <class U>
  static double number(const std::vector<U>& values, int64_t at) {
    return to_float(values[static_cast<size_t>(at)]);
  }

  static constexpr int64_t kPages = (kKeys + kPageUnit - 1) / kPageUnit;
  const std::vector<int32_t> table_{0, 1, 2, 3, 4};
  const std::vector<float> k_scales_ = scales(5), v_scales_ = scales(6);
  static std::vector<float> scales(uint32_t seed) {
    std::vector<float> values = numbers<float>(kKvHeads * kKeys, seed);
    for (float& x : values) x = (x + 2.0F) / 256.0F;
    return values;
  }
  const std::vector<Query> q_ = numbers<Query>(kHeads * kRows * kDk, 1);
  const std::vector<T> k_ = numbers<T>(kKvHeads * kKeys * kDk, 2);
  const std::vector<T> v_ = numbers<T>(kKvHeads * kKeys * kDv, 3);
  const std::vector<float> grad_out_ = numbers<float>(kHeads * kRows * kDv, 4);
  Numbers out_{kHeads, kRows, kDv}, lse_{kHeads, kRows, 1};
  Forward p_;
};

template <class T>
bool all_right() {
  Problem<T> problem;
  return problem.forward_is_right(ForwardTiling::Kind::decode) &&
         problem.forward_is_right(ForwardTiling::Kind::prefill) && problem.weights_are_right() &&
         problem.observation_is_right() && (sizeof(T) == 1 || problem.backward_is_right());
}

}  // namespace

bool self_check() {
  return all_right<float>() && all_right<bf16>() && all_right<f16>() && all_right<int8_t>() &&
         additive_self_check() && linear_self_check() && rows_self_check() && quantized_self_check() &&
         packed_self_check();
}

}  // namespace regard::kernel
