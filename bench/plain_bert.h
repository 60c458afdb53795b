#pragma once

#include <torch/nn.h>

#include <string>
#include <vector>

namespace regard::bench {

// The peer of `regard bench embed`: BERT as one writes it with libtorch's own modules and its
// scaled_dot_product_attention. Nothing of Regard's kernels, layers or models is in it.
class PlainBert : public torch::nn::Module {
 public:
  // folder: config.json and model.safetensors in the Hugging Face layout.
  explicit PlainBert(const std::string& folder);

  // ids [B, L] int64, lengths [B] int64 or undefined (no padding) -> mean over the real tokens, scaled to
  // length 1.
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& lengths);

 private:
  struct Layer {
    torch::nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
    torch::nn::LayerNorm attention_norm{nullptr}, output_norm{nullptr};
  };

  int64_t heads_ = 0;
  torch::nn::Embedding tokens_{nullptr}, positions_{nullptr}, types_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  std::vector<Layer> layers_;
};

}  // namespace regard::bench
