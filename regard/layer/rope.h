#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace regard::layer {

// How the rotation frequencies of a longer context are made from the trained ones.
struct RopeScaling {
  enum class Kind : uint8_t {
    none,
    linear,  // all frequencies divided by `factor`
    llama3   // Llama 3.1: only the slow ones are, with a ramp between the two wavelengths
  };
  Kind kind = Kind::none;
  double factor = 1.0;
  double low_frequency_factor = 1.0;   // llama3: wavelengths above original_length / this are divided
  double high_frequency_factor = 4.0;  // llama3: wavelengths below original_length / this are kept
  int64_t original_length = 8192;      // llama3: positions of the first training
};

// cos and sin of the angles of some positions: [L, 1, D / 2] float32, computed in float64.
struct RopeTable {
  at::Tensor cos;
  at::Tensor sin;
};

// Rotary position embedding in the "rotate halves" layout: components (i, i + D / 2) turn by position *
// base^(-2 i / D).
class Rope {
 public:
  // size: D, even. Throws std::invalid_argument otherwise and for a base or factor that is not positive.
  Rope(int64_t size, double base, const RopeScaling& scaling = {});

  // Radians per position, D / 2 of them.
  explicit Rope(std::vector<double> frequencies);

  // Of positions first, first + 1, ...
  RopeTable table(int64_t first, int64_t count) const;
  const std::vector<double>& frequencies() const { return frequencies_; }

 private:
  std::vector<double> frequencies_;
};

// x: [B, L, H, D] -> the same, turned.
at::Tensor rotate(const at::Tensor& x, const RopeTable& table);

}  // namespace regard::layer
