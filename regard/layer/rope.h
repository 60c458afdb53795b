#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace regard::layer {

// How the rotation frequencies of a longer context are made from the trained ones.
struct RopeScaling {
  enum class Kind : uint8_t {
    none,
    linear,   // all frequencies divided by `factor` (position interpolation, arXiv 2306.15595)
    llama3,   // Llama 3.1: only the slow ones are, with a ramp between the two wavelengths
    dynamic,  // "NTK-aware": a larger base once the text, `length`, is longer than original_length
    yarn      // YaRN (arXiv 2309.00071, section 3): divided where fewer than slow_turns turns fit into
              // original_length, kept where more than fast_turns do, a ramp between; cos and sin are scaled
  };
  Kind kind = Kind::none;
  double factor = 1.0;
  double low_frequency_factor = 1.0;   // llama3: wavelengths above original_length / this are divided
  double high_frequency_factor = 4.0;  // llama3: wavelengths below original_length / this are kept
  int64_t original_length = 8192;      // all but linear: positions of the first training
  int64_t length = 0;                  // dynamic: positions in use
  double fast_turns = 32;              // yarn: beta_fast
  double slow_turns = 1;               // yarn: beta_slow
  double mscale = 0;                   // yarn: DeepSeek's two factors, 0: not given
  double mscale_all = 0;               // yarn
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
  // What cos and sin of a table are multiplied by: 1 but for yarn, there 0.1 ln(factor) + 1 (section 3.4).
  double attention_factor() const { return attention_factor_; }

 private:
  std::vector<double> frequencies_;
  double attention_factor_ = 1.0;
};

// Which components turn together: (i, i + R / 2) as Hugging Face stores them, or neighbours (2 i, 2 i + 1) as
// in the paper (Su et al. 2021, arXiv 2104.09864) and GGUF files. Scores are equal, vectors are not.
enum class RopePairs : uint8_t { halves, neighbours };

// x: [B, L, H, D] -> the same, turned. The first R = 2 * (frequencies) components turn, the rest stays. Works
// in the type of x. The table's first axes may also be [B, L].
at::Tensor rotate(const at::Tensor& x, const RopeTable& table, RopePairs pairs = RopePairs::halves);

}  // namespace regard::layer
