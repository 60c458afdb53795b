#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "regard/layer/linear_attention.h"

// TransNormer (Qin et al. 2022, arXiv 2210.10340): the first half of the layers attends inside blocks, the
// second half everywhere, linearly and without a denominator, whose gradients have no bound.
namespace regard::layer {

struct TransNormerOptions {
  int64_t width = 1;
  int64_t heads = 1;
  int64_t block = 64;  // diagonal: tokens that attend to each other
  bool causal = true;
  double norm_epsilon = 1e-6;  // of NormAttention's RMSNorm
};

// RMSNorm(p(q) (p(k)^T v)), p = elu + 1, over the features of all heads.
class NormAttention : public torch::nn::Module {
 public:
  explicit NormAttention(const TransNormerOptions& options);
  // x: [B, L, width] -> the same. state: causal only.
  at::Tensor forward(const at::Tensor& x, LinearState* state = nullptr) const;

 private:
  TransNormerOptions options_;
  std::shared_ptr<Linear> q_, k_, v_, out_;
  std::shared_ptr<Norm> norm_;
};

// Keys and values of the block that a text ends in.
struct BlockState {
  at::Tensor k, v;  // [B, H, position mod block, D]; undefined before the first token
  int64_t position = 0;
};

// Softmax attention inside blocks that do not overlap.
class DiagAttention : public torch::nn::Module {
 public:
  explicit DiagAttention(const TransNormerOptions& options);
  at::Tensor forward(const at::Tensor& x, BlockState* state = nullptr) const;

 private:
  TransNormerOptions options_;
  std::shared_ptr<Linear> q_, k_, v_, out_;
};

}  // namespace regard::layer
