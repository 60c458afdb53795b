#include "regard/layer/rope.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>

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
  }
  const double wavelengths =
      static_cast<double>(scaling.original_length) * frequency / (2 * std::numbers::pi);
  if (wavelengths > scaling.high_frequency_factor) return frequency;
  if (wavelengths < scaling.low_frequency_factor) return frequency / scaling.factor;
  const double kept = (wavelengths - scaling.low_frequency_factor) /
                      (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
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
  for (int64_t i = 0; i < size / 2; ++i) {
    frequencies_.push_back(
        scaled(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(size)), scaling));
  }
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
      cos[p * half + i] = static_cast<float>(std::cos(angle));
      sin[p * half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& table) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor low = x.narrow(-1, 0, half);
  const at::Tensor high = x.narrow(-1, half, half);
  return at::cat({low * table.cos - high * table.sin, high * table.cos + low * table.sin}, -1);
}

}  // namespace regard::layer
