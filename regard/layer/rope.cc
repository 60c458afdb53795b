#include "regard/layer/rope.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>

#include "regard/autograd/parallel.h"
#include "regard/autograd/views.h"
#include "regard/kernel/pointwise.h"

namespace regard::layer {
namespace {

double scaled(double frequency, const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::Kind::none:
      return frequency;
    case RopeScaling::Kind::linear:
      return frequency / scaling.factor;
    case RopeScaling::Kind::llama3:
      break;
    case RopeScaling::Kind::dynamic:
    case RopeScaling::Kind::yarn:
      return frequency;  // not a matter of one frequency alone
  }
  const double wavelengths =
      static_cast<double>(scaling.original_length) * frequency / (2 * std::numbers::pi);
  if (wavelengths > scaling.high_frequency_factor) return frequency;
  if (wavelengths < scaling.low_frequency_factor) return frequency / scaling.factor;
  const double kept = (wavelengths - scaling.low_frequency_factor) /
                      (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

// The base that stretches the slowest frequency to the longer text and keeps the fastest.
double dynamic_base(double base, int64_t size, const RopeScaling& scaling) {
  const double longer =
      scaling.factor * static_cast<double>(scaling.length) / static_cast<double>(scaling.original_length) -
      (scaling.factor - 1);
  if (scaling.length <= scaling.original_length) return base;
  return base * std::pow(longer, static_cast<double>(size) / static_cast<double>(size - 2));
}

// Which frequencies (by their number) make so many turns over the original length.
double number_of_turns(double turns, double base, int64_t size, int64_t original_length) {
  return static_cast<double>(size) *
         std::log(static_cast<double>(original_length) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(base));
}

void stretch_yarn(double base, int64_t size, const RopeScaling& scaling, std::vector<double>& frequencies) {
  const double low =
      std::max(std::floor(number_of_turns(scaling.fast_turns, base, size, scaling.original_length)), 0.0);
  double high = std::min(std::ceil(number_of_turns(scaling.slow_turns, base, size, scaling.original_length)),
                         static_cast<double>(size - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / scaling.factor * ramp + frequencies[i] * (1 - ramp);
  }
}

double yarn_factor(const RopeScaling& scaling) {
  const auto of = [&](double mscale) {
    return scaling.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(scaling.factor) + 1;
  };
  if (scaling.mscale > 0 && scaling.mscale_all > 0) return of(scaling.mscale) / of(scaling.mscale_all);
  return of(1);
}

}  // namespace

Rope::Rope(int64_t size, double base, const RopeScaling& scaling) {
  if (size < 2 || size % 2 != 0) {
    throw std::invalid_argument("Rope: size is " + std::to_string(size) + "; it must be even and at least 2");
  }
  if (!(base > 0) || !(scaling.factor > 0) ||
      (scaling.kind == RopeScaling::Kind::llama3 &&
       !(scaling.high_frequency_factor > scaling.low_frequency_factor))) {
    throw std::invalid_argument(
        "Rope: base and factor must be positive, and high_frequency_factor above low_frequency_factor");
  }
  if (scaling.original_length < 1 || scaling.length < 0 ||
      (scaling.kind == RopeScaling::Kind::dynamic && size < 4)) {
    throw std::invalid_argument(
        "Rope: original_length must be at least 1, and size at least 4 where it is dynamic");
  }
  if (scaling.kind == RopeScaling::Kind::dynamic) base = dynamic_base(base, size, scaling);
  for (int64_t i = 0; i < size / 2; ++i) {
    frequencies_.push_back(
        scaled(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(size)), scaling));
  }
  if (scaling.kind != RopeScaling::Kind::yarn) return;
  stretch_yarn(base, size, scaling, frequencies_);
  attention_factor_ = yarn_factor(scaling);
}

Rope::Rope(std::vector<double> frequencies) : frequencies_(std::move(frequencies)) {
  if (frequencies_.empty()) throw std::invalid_argument("Rope: there must be at least one frequency");
}

RopeTable Rope::table(int64_t first, int64_t count) const {
  const auto half = static_cast<int64_t>(frequencies_.size());
  RopeTable table{at::empty({count, 1, half}, at::kFloat), at::empty({count, 1, half}, at::kFloat)};
  float* cos = table.cos.mutable_data_ptr<float>();
  float* sin = table.sin.mutable_data_ptr<float>();
  for (int64_t p = 0; p < count; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(first + p) * frequencies_[static_cast<size_t>(i)];
      cos[p * half + i] = static_cast<float>(attention_factor_ * std::cos(angle));
      sin[p * half + i] = static_cast<float>(attention_factor_ * std::sin(angle));
    }
  }
  return table;
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& table, RopePairs pairs) {
  const int64_t half = table.cos.size(-1);
  const int64_t turned = 2 * half;
  if (turned > x.size(-1)) {
    throw std::invalid_argument("rotate: the table turns " + std::to_string(turned) + " components; x has " +
                                std::to_string(x.size(-1)));
  }
  if (pairs == RopePairs::halves && turned == x.size(-1) && x.dim() == 4 && x.stride(-1) == 1 &&
      x.scalar_type() == at::kFloat && table.cos.scalar_type() == at::kFloat && table.cos.dim() == 3 &&
      table.cos.is_contiguous() && table.sin.is_contiguous() && table.cos.size(0) == x.size(1) &&
      !(at::GradMode::is_enabled() && x.requires_grad())) {
    at::Tensor out = at::empty(x.sizes(), x.options());
    // [B, L, H, D] as [B, H, L, D].
    const at::Tensor heads = x.transpose(1, 2), result = out.transpose(1, 2);
    kernel::rotate_halves(autograd::const_view(heads, "x").as<const float>(),
                          table.cos.const_data_ptr<float>(), table.sin.const_data_ptr<float>(),
                          autograd::mutable_view(result, "x").as<float>(), autograd::at_parallel());
    return out;
  }
  const bool neighbours = pairs == RopePairs::neighbours;
  const at::Tensor part = turned == x.size(-1) ? x : x.narrow(-1, 0, turned);
  const at::Tensor low = neighbours ? part.slice(-1, 0, turned, 2) : part.narrow(-1, 0, half);
  const at::Tensor high = neighbours ? part.slice(-1, 1, turned, 2) : part.narrow(-1, half, half);
  const at::Tensor first = low * table.cos - high * table.sin;
  const at::Tensor second = high * table.cos + low * table.sin;
  at::Tensor result = neighbours ? at::stack({first, second}, -1).flatten(-2) : at::cat({first, second}, -1);
  if (turned < x.size(-1)) result = at::cat({result, x.narrow(-1, turned, x.size(-1) - turned)}, -1);
  return result;
}

}  // namespace regard::layer
