#include "regard/layer/position.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace regard::layer {

at::Tensor sinusoid(int64_t first, int64_t length, int64_t width) {
  if (width < 2 || width % 2 != 0) {
    throw std::invalid_argument("sinusoid: width is " + std::to_string(width) +
                                "; it must be even and at least 2");
  }
  at::Tensor table = at::empty({length, width}, at::kFloat);
  float* to = table.mutable_data_ptr<float>();
  for (int64_t p = 0; p < length; ++p) {
    for (int64_t i = 0; i < width; i += 2) {
      const double angle = static_cast<double>(first + p) *
                           std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(width));
      to[p * width + i] = static_cast<float>(std::sin(angle));
      to[p * width + i + 1] = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

LearnedPositions::LearnedPositions(int64_t positions, int64_t width)
    : weight_(register_parameter("weight", at::empty({positions, width}, at::kFloat).normal_(0, 0.02))) {}

at::Tensor LearnedPositions::forward(int64_t first, int64_t length) const {
  if (first < 0 || length < 0 || first + length > weight_.size(0)) {
    throw std::invalid_argument("LearnedPositions: positions " + std::to_string(first) + " to " +
                                std::to_string(first + length - 1) + " were asked for; there are " +
                                std::to_string(weight_.size(0)));
  }
  return weight_.narrow(0, first, length);
}

at::Tensor alibi_slopes(int64_t heads) {
  if (heads < 1) throw std::invalid_argument("alibi_slopes: heads must be at least 1");
  int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  std::vector<float> slopes;
  const auto slope = [](int64_t i, int64_t of) {
    return static_cast<float>(std::pow(2.0, -8.0 * static_cast<double>(i + 1) / static_cast<double>(of)));
  };
  for (int64_t i = 0; i < power; ++i) slopes.push_back(slope(i, power));
  for (int64_t i = 0; static_cast<int64_t>(slopes.size()) < heads; i += 2)
    slopes.push_back(slope(i, 2 * power));
  return at::tensor(slopes, at::kFloat);
}

}  // namespace regard::layer
