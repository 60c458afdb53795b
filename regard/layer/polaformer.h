#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "regard/layer/linear_attention.h"

namespace regard::layer {

struct PolaFormerOptions {
  int64_t width = 1;
  int64_t heads = 1;    // of an even size
  int64_t height = 0;   // of the image whose places the tokens are, row by row;
  int64_t columns = 0;  // 0: a text, without the convolution and the table of positions
  int64_t kernel = 5;   // of the convolution, odd
  double alpha = 4;     // powers lie in (1, 1 + alpha)
  bool causal = false;  // for texts
  double epsilon = 1e-6;
};

// Polarity-aware linear attention (Meng et al. 2025, arXiv 2501.15061, section 4). What q . k is made of is
// kept apart by sign: with q+ = relu(q), q- = relu(-q), one stream has the features [q+; q-] against [k+;
// k-], the other [q-; q+]; each has half of the values, and its weights stay positive. Features are raised to
// learned powers p = 1 + alpha sigmoid(w), which lowers the entropy of the weights. A gate x W_G, token by
// token, does what the subtraction of the streams would have done:
//   out = W ((streams + convolution of v over the image) gate).
// Before the powers q and k are divided by softplus(scale), and k has learned positions added.
class PolaFormer : public torch::nn::Module {
 public:
  explicit PolaFormer(const PolaFormerOptions& options);

  // x: [B, L, width] -> the same; L = height columns for an image. state: causal only.
  at::Tensor forward(const at::Tensor& x, LinearState* state = nullptr) const;

  // [B, H, L, D] -> [B, H, L, 2 D]: relu(x)^p and relu(-x)^p; opposite: in the other order.
  at::Tensor features(const at::Tensor& x, bool opposite = false) const;
  // [1, H, 1, D]
  at::Tensor powers() const;

 private:
  PolaFormerOptions options_;
  std::shared_ptr<Linear> q_, kv_, gate_, out_;
  at::Tensor scale_;        // [width]
  at::Tensor power_;        // [1, H, 1, D]
  at::Tensor positions_;    // [1, L, width]
  at::Tensor convolution_;  // [D, 1, kernel, kernel], shared by the heads
  at::Tensor convolution_bias_;
};

}  // namespace regard::layer
