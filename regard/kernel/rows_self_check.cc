#include <algorithm>
#include <cmath>
#include <vector>

#include "regard/kernel/adam.h"
#include "regard/kernel/check_numbers.h"
#include "regard/kernel/dropout.h"
#include "regard/kernel/norm.h"
#include "regard/kernel/pointwise.h"
#include "regard/kernel/self_check.h"
#include "regard/kernel/softmax.h"

// Kernels that go over rows of numbers.
namespace regard::kernel {
namespace {

using check::dot;
using check::is_close;
using check::is_gradient;
using check::numbers;
using check::wide;
using Doubles = std::vector<double>;

constexpr int64_t kRows = 3, kColumns = 37;  // vectors of every length, and a rest
constexpr size_t kWidth = kColumns;

template <class Row>
Doubles by_rows(const Doubles& x, const Row& row) {
  Doubles out(x.size());
  for (size_t at = 0; at < x.size(); at += kWidth) row(x.data() + at, out.data() + at);
  return out;
}

bool norm_is_right(NormForm form) {
  const auto x = numbers(kRows * kColumns, 1), weight = numbers(kColumns, 2), bias = numbers(kColumns, 3),
             grad = numbers(kRows * kColumns, 4);
  const auto plain = [&](const Doubles& from, const Doubles& times, const Doubles& plus) {
    return by_rows(from, [&](const double* row, double* out) {
      double mean = 0, squares = 0;
      for (size_t i = 0; form != NormForm::rms && i < kWidth; ++i) mean += row[i] / kWidth;
      for (size_t i = 0; i < kWidth; ++i) squares += (row[i] - mean) * (row[i] - mean);
      const double below = form == NormForm::harvard ? std::sqrt(squares / (kWidth - 1)) + 1e-5
                                                     : std::sqrt(squares / kWidth + 1e-5);
      for (size_t i = 0; i < kWidth; ++i) out[i] = (row[i] - mean) / below * times[i] + plus[i];
    });
  };
  const NormRows call{form, x.data(), kRows, kColumns, weight.data(), bias.data(), 1e-5};
  std::vector<float> out(x.size()), grad_x(x.size());
  Doubles sums;
  Serial serial;
  norm(call, out.data(), serial);
  norm_backward(call, grad.data(), grad_x.data(), sums, serial);
  const Doubles x_is = wide(x), weight_is = wide(weight), bias_is = wide(bias);
  const Doubles of_bias(sums.begin() + kColumns, sums.end());
  return is_close(out, plain(x_is, weight_is, bias_is)) &&
         is_gradient(grad_x, x,
                     [&](const Doubles& at) { return dot(plain(at, weight_is, bias_is), grad); }) &&
         is_gradient(sums, weight, [&](const Doubles& at) { return dot(plain(x_is, at, bias_is), grad); }) &&
         (form == NormForm::rms || is_gradient(of_bias, bias, [&](const Doubles& at) {
            return dot(plain(x_is, weight_is, at), grad);
          }));
}

bool softmax_is_right(SoftmaxWay way, bool log) {
  const auto x = numbers(kRows * kColumns, 1, -4, 4), grad = numbers(kRows * kColumns, 2);
  const auto plain = [&](const Doubles& from) {
    return by_rows(from, [&](const double* row, double* out) {
      double sum = 0;
      for (size_t i = 0; i < kWidth; ++i) sum += std::exp(row[i]);
      for (size_t i = 0; i < kWidth; ++i) out[i] = log ? row[i] - std::log(sum) : std::exp(row[i]) / sum;
    });
  };
  const Rows2d rows{kRows, kColumns, kColumns};
  std::vector<float> y(x.size()), grad_x(x.size());
  Serial serial;
  softmax(way, log, rows, x.data(), y.data(), serial);
  softmax_backward(log, rows, y.data(), grad.data(), grad_x.data(), serial);
  return is_close(y, plain(wide(x))) &&
         is_gradient(grad_x, x, [&](const Doubles& at) { return dot(plain(at), grad); });
}

bool gated_silu_is_right() {
  const auto gate = numbers(kColumns, 1, -4, 4), up = numbers(kColumns, 2), grad = numbers(kColumns, 3);
  const auto plain = [](const Doubles& a, const Doubles& b) {
    Doubles out;
    for (size_t i = 0; i < kWidth; ++i) out.push_back(a[i] / (1 + std::exp(-a[i])) * b[i]);
    return out;
  };
  std::vector<float> out(kWidth), d_gate(kWidth), d_up(kWidth);
  Serial serial;
  gated_silu(gate.data(), up.data(), kColumns, 1, kColumns, out.data(), serial);
  gated_silu_backward(gate.data(), up.data(), kColumns, grad.data(), 1, kColumns, d_gate.data(), d_up.data(),
                      serial);
  const Doubles gate_is = wide(gate), up_is = wide(up);
  return is_close(out, plain(gate_is, up_is)) &&
         is_gradient(d_gate, gate, [&](const Doubles& at) { return dot(plain(at, up_is), grad); }) &&
         is_gradient(d_up, up, [&](const Doubles& at) { return dot(plain(gate_is, at), grad); });
}

bool rotation_is_right() {
  const auto x = numbers(kRows * 2 * kColumns, 1), cos = numbers(kRows * kColumns, 2),
             sin = numbers(kRows * kColumns, 3);
  std::vector<float> out(x.size());
  Serial serial;
  const Extents size{1, 1, kRows, 2 * kColumns};
  rotate_halves(View<const float>(x.data(), size), cos.data(), sin.data(), View<float>(out.data(), size),
                serial);
  Doubles want(x.size());
  for (size_t row = 0; row < kRows; ++row)
    for (size_t i = 0; i < kWidth; ++i) {
      const size_t low = row * 2 * kWidth + i, high = low + kWidth;
      const double c = cos[row * kWidth + i], s = sin[row * kWidth + i];
      want[low] = x[low] * c - x[high] * s;
      want[high] = x[high] * c + x[low] * s;
    }
  return is_close(out, want);
}

bool adam_is_right() {
  const auto gradient = numbers(kColumns, 1);
  auto value = numbers(kColumns, 2), first = numbers(kColumns, 3), second = numbers(kColumns, 4, 0.1F);
  AdamStep how;
  how.scale = 0.7F;
  how.coupled_decay = 0.02F;
  how.keep = 0.99F;
  how.step = 0.3F;
  how.root = 0.4F;
  Doubles want_value, want_first, want_second;
  double squares = 0;
  for (size_t i = 0; i < kWidth; ++i) {
    const double g =
        how.scale * static_cast<double>(gradient[i]) + how.coupled_decay * static_cast<double>(value[i]);
    const double m = how.beta1 * static_cast<double>(first[i]) + how.rest1 * g;
    const double v = how.beta2 * static_cast<double>(second[i]) + how.rest2 * g * g;
    want_value.push_back(value[i] * static_cast<double>(how.keep) -
                         how.step * m / (std::sqrt(v) / how.root + how.epsilon));
    want_first.push_back(m);
    want_second.push_back(v);
    squares += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
  }
  Serial serial;
  adam({{how, value.data(), gradient.data(), first.data(), second.data(), kColumns}}, serial);
  return is_close(value, want_value) && is_close(first, want_first) && is_close(second, want_second) &&
         std::abs(sum_of_squares({{gradient.data(), kColumns}}, serial) - squares) <= 1e-5 * squares;
}

bool dropout_is_right() {
  constexpr int64_t kCount = 333;
  const Dropout dropout{.threshold = 20000, .seed = 3, .offset = 5};
  const auto x = numbers(kCount, 1);
  const Doubles x_is = wide(x);
  std::vector<float> y(x.size());
  Doubles want(x.size());
  Serial serial;
  drop_elements(dropout, x.data(), kCount, y.data(), serial);
  drop_elements(dropout, x_is.data(), kCount, want.data(), serial);
  return is_close(y, want);
}

}  // namespace

bool rows_self_check() {
  for (const NormForm form : {NormForm::layer, NormForm::rms, NormForm::harvard})
    if (!norm_is_right(form)) return false;
  for (const SoftmaxWay way : {SoftmaxWay::naive, SoftmaxWay::safe, SoftmaxWay::online})
    for (const bool log : {false, true})
      if (!softmax_is_right(way, log)) return false;
  return gated_silu_is_right() && rotation_is_right() && adam_is_right() && dropout_is_right();
}

}  // namespace regard::kernel
