#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

// Where a token stands, as numbers added to the input or to the logits. Rotary positions: rope.h.
namespace regard::layer {

// [length, width] float32, width even: sin(p / 10000^(2 i / width)) in column 2 i and cos in 2 i + 1, of
// positions first, first + 1, ... (Vaswani et al. 2017, arXiv 1706.03762, section 3.5). A shift of position
// is a rotation of each pair.
at::Tensor sinusoid(int64_t first, int64_t length, int64_t width);

// A vector for each position, learned.
class LearnedPositions : public torch::nn::Module {
 public:
  // N(0, 0.02^2) at first.
  LearnedPositions(int64_t positions, int64_t width);
  // [length, width]; throws std::invalid_argument beyond the last position.
  at::Tensor forward(int64_t first, int64_t length) const;

 private:
  at::Tensor weight_;
};

// One slope a head for autograd::AttentionExtras::slopes (Press et al. 2022, arXiv 2108.12409): 2^(-8 /
// heads), and its powers; where heads is no power of two, those of the next smaller one, then every other one
// of twice as many.
at::Tensor alibi_slopes(int64_t heads);

}  // namespace regard::layer
