#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "regard/layer/basic.h"

// Approximations of full attention that are compositions of the engine. Block and hashed attention:
// autograd/structured.h.
namespace regard::layer {

// Nystrom attention (Xiong et al. 2021, arXiv 2102.03902): with landmarks Q~, K~ (means of consecutive rows),
//   softmax(Q K~^T) pinv(softmax(Q~ K~^T)) (softmax(Q~ K^T) V),
// O(L landmarks). Not causal. pinv is a fixed number of steps of an iteration and no exact inverse on
// purpose: cut short it regularises; on noise an exact inverse makes errors larger than the result.
struct NystromOptions {
  int64_t landmarks = 64;
  int64_t iterations = 6;
  // Where the iteration starts: A^T over the product of A's largest column and row sum, each matrix by
  // itself; or, as the authors' program and its ports do it, by the largest of the whole batch and all heads,
  // which makes an example's result depend on its neighbours.
  bool shared_start = false;
};

// q, k: [B, H, L, Dk], v: [B, H, L, Dv], float32 -> [B, H, L, Dv]; scale: default 1 / sqrt(Dk). L that is no
// multiple of landmarks is padded in front with rows of zeros (which count, as in the ports) unless there is
// a mask. mask [B, L] bool, true: a real token; masked tokens, padding and landmarks of nothing else take no
// part, and their rows are 0.
at::Tensor nystrom_attention(const NystromOptions& options, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const at::Tensor& mask = {});

// The iteration by itself: a [..., m, m] -> its pseudo-inverse.
at::Tensor iterative_pinv(const at::Tensor& a, int64_t iterations, bool shared_start = false);

// Self-attention with it, and the convolution of v along the text that the paper adds (section 3.3).
class Nystrom : public torch::nn::Module {
 public:
  // kernel: of the convolution, odd; 0: none. No biases but on the way out.
  Nystrom(const NystromOptions& options, int64_t width, int64_t heads, int64_t head_size,
          int64_t kernel = 33);
  // x: [B, L, width] -> the same. mask as above.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask = {}) const;

 private:
  NystromOptions options_;
  int64_t heads_, size_;
  std::shared_ptr<Linear> qkv_, out_;
  at::Tensor convolution_;  // [H, 1, kernel, 1]
};

// Linformer (Wang et al. 2020, arXiv 2006.04768): keys and values of a text of a fixed length become `rank`
// mixtures of them, E k and F v; then full attention to these. O(L rank). Not causal: a mixture holds the
// future.
class Linformer : public torch::nn::Module {
 public:
  // N(0, 1 / rank) at first. shared: E = F.
  Linformer(int64_t length, int64_t rank, bool shared = false);
  // q: [B, Hq, Lq, Dk], k, v: [B, Hkv, L, D], L at most length.
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const;

 private:
  at::Tensor key_projection_, value_projection_;  // [rank, length]
};

}  // namespace regard::layer
