#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "regard/layer/attention.h"
#include "regard/layer/basic.h"

namespace regard::layer {

// Where a block normalises: pre: x + f(norm(x)) (GPT-2, Llama); post: norm(x + f(x)) (the first Transformer,
// BERT).
enum class NormPlace : uint8_t { pre, post };

// One transformer block, the same for every model here: attention, then feed-forward, each with a residual
// sum and a norm. BERT, GPT-2 and Llama differ in the switches of its parts, not in the code.
class Block : public torch::nn::Module {
 public:
  Block(NormPlace place, std::shared_ptr<Attention> attention, std::shared_ptr<Norm> attention_norm,
        std::shared_ptr<FeedForward> feed_forward, std::shared_ptr<Norm> feed_forward_norm);

  // x: [B, L, width] -> [B, L, width].
  at::Tensor forward(const at::Tensor& x, int64_t layer, const Pass& pass) const;

 private:
  NormPlace place_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<Norm> attention_norm_;
  std::shared_ptr<FeedForward> feed_forward_;
  std::shared_ptr<Norm> feed_forward_norm_;
};

}  // namespace regard::layer
