#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <vector>

#include "regard/train/shuffle.h"

namespace regard::lab {

// Random numbers that are the same on every machine (up to the last bit of its log and cos).
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : generator_(train::generator_of(seed, stream)) {}

  double uniform() { return (static_cast<double>(generator_() >> 11) + 0.5) * 0x1p-53; }  // in (0, 1)
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(train::below(generator_, static_cast<uint64_t>(limit)));
  }
  // N(0, 1), by Box and Muller.
  double normal() {
    if (spare_is_there_) {
      spare_is_there_ = false;
      return spare_;
    }
    const double length = std::sqrt(-2 * std::log(uniform()));
    const double angle = 2 * std::numbers::pi * uniform();
    spare_ = length * std::sin(angle);
    spare_is_there_ = true;
    return length * std::cos(angle);
  }
  std::vector<double> normals(int64_t count, double deviation = 1) {
    std::vector<double> out(static_cast<size_t>(count));
    for (double& value : out) value = deviation * normal();
    return out;
  }

 private:
  std::mt19937_64 generator_;
  double spare_ = 0;
  bool spare_is_there_ = false;
};

}  // namespace regard::lab
