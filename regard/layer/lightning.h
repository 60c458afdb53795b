#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "regard/layer/linear_attention.h"

namespace regard::layer {

struct LightningOptions {
  int64_t width = 1;
  int64_t heads = 1;
  int64_t head_size = 1;
  int64_t layer = 0;   // of `layers`, from 0: the last one hardly forgets
  int64_t layers = 1;  // lightning and softmax layers together
  double norm_epsilon = 1e-6;
};

// -s of each head, s = 2^(-8 h / H) (1 - layer / (layers - 1) + 1e-5), h = 1 .. H: the log decay of a token.
// With numbers of heads that are no powers of two the published program takes the same rule. [H] float64.
at::Tensor lightning_log_decays(int64_t heads, int64_t layer, int64_t layers);

// Lightning attention as MiniMax-01 has it (arXiv 2501.08313, section 2.2.1): q, k, v = SiLU(x W) (each
// head's q, k and v side by side), a fixed decay for each head, no denominator and no positions;
//   y = W (sigmoid(x W_G) RMSNorm(out of all heads)).
class Lightning : public torch::nn::Module {
 public:
  explicit Lightning(const LightningOptions& options);

  // x: [B, L, width] -> the same. token_mask: [B, L] bool, false: adds nothing; the state decays past it all
  // the same, as in the published program.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& token_mask = {},
                     LinearState* state = nullptr) const;

 private:
  LightningOptions options_;
  at::Tensor log_decays_;  // [1, H, 1, 1]
  std::shared_ptr<Linear> qkv_, gate_, out_;
  std::shared_ptr<Norm> norm_;
};

}  // namespace regard::layer
