#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace regard::bench {

struct PlainLlamaOptions {
  int64_t layers = 1;
  int64_t width = 256;
  int64_t heads = 8;
  int64_t feed_forward = 704;
  int64_t vocabulary = 256;
  double epsilon = 1e-5;
  double rope_base = 10000;
};

// The Llama block as people write it with libtorch's own modules: nn::Linear, at::rms_norm,
// at::scaled_dot_product_attention, torch's autograd throughout; the head is tied to the embedding.
class PlainLlama : public torch::nn::Module {
 public:
  // weights: by the names of published Llama models, copied.
  PlainLlama(const PlainLlamaOptions& options, const std::map<std::string, at::Tensor>& weights);

  // ids, next: [B, L] int64 -> the mean cross-entropy.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& next);

 private:
  struct Layer {
    torch::nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, out{nullptr}, gate{nullptr}, up{nullptr},
        down{nullptr};
    at::Tensor attention_norm, feed_forward_norm;
  };
  at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) const;

  PlainLlamaOptions options_;
  torch::nn::Embedding tokens_{nullptr};
  std::vector<Layer> layers_;
  at::Tensor final_norm_;
};

}  // namespace regard::bench
