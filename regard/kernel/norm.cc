#include "regard/kernel/norm.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/norm.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/some-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

struct RowNumbers {
  float mean, inverse;
  double deviation;  // harvard
};

HWY_INLINE RowNumbers measure(const NormRows& call, const float* x) {
  const D d;
  const auto n = static_cast<double>(call.n);
  double mean = 0;
  if (call.form != NormForm::rms) {
    Vec sum = hn::Zero(d);
    each_vector(call.n,
                [&](int64_t i, int64_t count) HWY_ATTR { sum = hn::Add(sum, load_some(x + i, count)); });
    mean = static_cast<double>(sum_of_lanes(d, sum)) / n;
  }
  const Vec middle = hn::Set(d, static_cast<float>(mean));
  Vec squares = hn::Zero(d), rest = hn::Zero(d);
  each_vector(call.n, [&](int64_t i, int64_t count) HWY_ATTR {
    const Vec away = keep_some(hn::Sub(load_some(x + i, count), middle), count);
    squares = hn::MulAdd(away, away, squares);
    rest = hn::Add(rest, away);
  });
  auto total = static_cast<double>(sum_of_lanes(d, squares));
  if (call.form != NormForm::rms) {  // what rounding left of the mean
    const double left = static_cast<double>(sum_of_lanes(d, rest)) / n;
    mean = static_cast<double>(static_cast<float>(mean)) + left;
    total = std::max(0.0, total - n * left * left);
  }
  RowNumbers row{static_cast<float>(mean), 0, 0};
  if (call.form == NormForm::harvard) {
    row.deviation = std::sqrt(total / (n - 1));
    row.inverse = static_cast<float>(1 / (row.deviation + call.epsilon));
  } else {
    row.inverse = static_cast<float>(1 / std::sqrt(total / n + call.epsilon));
  }
  return row;
}

void NormRow(const NormRows& call, const float* x, float* out) {
  const D d;
  const RowNumbers row = measure(call, x);
  const Vec mean = hn::Set(d, row.mean), inverse = hn::Set(d, row.inverse);
  each_vector(call.n, [&](int64_t i, int64_t count) HWY_ATTR {
    Vec y = hn::Mul(hn::Sub(load_some(x + i, count), mean), inverse);
    if (call.weight != nullptr) y = hn::Mul(y, load_some(call.weight + i, count));
    if (call.bias != nullptr) y = hn::Add(y, load_some(call.bias + i, count));
    store_some(y, count, out + i);
  });
}

// With g = grad * weight and y = (x - mean) * inverse:
// layer: inverse (g - mean(g) - y mean(g y)); rms: without mean(g); harvard: inverse (g - mean(g)) - y sum(g
// y) / (deviation (n - 1)). of_weight += grad y, of_bias += grad.
void NormBackwardRow(const NormRows& call, const float* x, const float* grad, float* grad_x, float* of_weight,
                     float* of_bias) {
  const D d;
  const RowNumbers row = measure(call, x);
  const Vec mean = hn::Set(d, row.mean), inverse = hn::Set(d, row.inverse);
  const auto normalized = [&](int64_t i, int64_t count)
                              HWY_ATTR { return hn::Mul(hn::Sub(load_some(x + i, count), mean), inverse); };
  const auto graded = [&](int64_t i, int64_t count) HWY_ATTR {
    const Vec g = load_some(grad + i, count);
    return call.weight == nullptr ? g : hn::Mul(g, load_some(call.weight + i, count));
  };
  Vec sum = hn::Zero(d), dot = hn::Zero(d);
  each_vector(call.n, [&](int64_t i, int64_t count) HWY_ATTR {
    const Vec y = normalized(i, count), g = graded(i, count), arriving = load_some(grad + i, count);
    sum = hn::Add(sum, g);
    dot = hn::MulAdd(g, y, dot);  // g is 0 beyond the row
    store_some(hn::MulAdd(arriving, y, load_some(of_weight + i, count)), count, of_weight + i);
    if (call.form != NormForm::rms)
      store_some(hn::Add(arriving, load_some(of_bias + i, count)), count, of_bias + i);
  });
  const auto n = static_cast<double>(call.n);
  const auto along_y = static_cast<double>(sum_of_lanes(d, dot));
  const double along = call.form == NormForm::harvard
                           ? (row.deviation > 0 ? along_y / (row.deviation * (n - 1)) : 0.0)
                           : static_cast<double>(row.inverse) * along_y / n;
  const Vec back = hn::Set(d, static_cast<float>(along));
  const Vec shift = hn::Set(d, call.form == NormForm::rms
                                   ? 0.0F
                                   : static_cast<float>(static_cast<double>(sum_of_lanes(d, sum)) / n));
  each_vector(call.n, [&](int64_t i, int64_t count) HWY_ATTR {
    const Vec away = hn::Mul(inverse, hn::Sub(graded(i, count), shift));
    store_some(hn::NegMulAdd(back, normalized(i, count), away), count, grad_x + i);
  });
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "regard/kernel/dispatch.h"

namespace regard::kernel {
namespace {

constexpr int64_t kTaskRows = 16;
constexpr int64_t kSumRows = 64;  // rows whose part of the weight's gradient is summed together

template <class Row>
void each_row(int64_t rows, int64_t of_a_task, Parallel& parallel, Row&& row) {
  parallel.run((rows + of_a_task - 1) / of_a_task, [&](int64_t task, int) {
    for (int64_t r = task * of_a_task; r < std::min(rows, (task + 1) * of_a_task); ++r) row(r, task);
  });
}

}  // namespace

HWY_EXPORT(NormRow);
HWY_EXPORT(NormBackwardRow);

void norm(const NormRows& call, float* out, Parallel& parallel) {
  const auto one = REGARD_DISPATCH(NormRow);
  each_row(call.rows, kTaskRows, parallel,
           [&](int64_t r, int64_t) { one(call, call.x + r * call.n, out + r * call.n); });
}

void norm_backward(const NormRows& call, const float* grad, float* grad_x, std::vector<double>& sums,
                   Parallel& parallel) {
  const auto one = REGARD_DISPATCH(NormBackwardRow);
  const int64_t n = call.n;
  std::vector<float> parts(static_cast<size_t>((call.rows + kSumRows - 1) / kSumRows * 2 * n));
  each_row(call.rows, kSumRows, parallel, [&](int64_t r, int64_t task) {
    float* of_weight = parts.data() + task * 2 * n;
    one(call, call.x + r * n, grad + r * n, grad_x + r * n, of_weight, of_weight + n);
  });
  sums.assign(static_cast<size_t>(2 * n), 0.0);
  for (size_t i = 0; i < parts.size(); ++i) sums[i % sums.size()] += static_cast<double>(parts[i]);
}

}  // namespace regard::kernel

#endif  // HWY_ONCE
