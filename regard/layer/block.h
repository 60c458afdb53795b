#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "regard/layer/attention.h"
#include "regard/layer/basic.h"
#include "regard/layer/mixture.h"
#include "regard/layer/options.h"

namespace regard::layer {

// Attention over another text, between the two others of a decoder's block (Vaswani et al. 2017, arXiv
// 1706.03762, section 3.1).
struct CrossPart {
  std::shared_ptr<Attention> attention;  // null: there is none
  std::shared_ptr<Norm> norm;
};

// One transformer block, the same for every model here: attention, in some also attention over another text,
// then feed-forward, each with a residual sum and a norm. BERT, GPT-2, Llama and translators differ in the
// switches of its parts, not in the code.
class Block : public torch::nn::Module {
 public:
  // dropout: of what each part adds to the stream, in training.
  Block(NormPlace place, std::shared_ptr<SelfAttention> attention, std::shared_ptr<Norm> attention_norm,
        std::shared_ptr<FeedForward> feed_forward, std::shared_ptr<Norm> feed_forward_norm,
        CrossPart cross = {}, double dropout = 0);
  // With a mixture of experts in place of one feed-forward; its balance goes to the context's loss terms.
  Block(NormPlace place, std::shared_ptr<SelfAttention> attention, std::shared_ptr<Norm> attention_norm,
        std::shared_ptr<MixtureOfExperts> mixture, std::shared_ptr<Norm> feed_forward_norm,
        double dropout = 0);

  // x: [B, L, width] -> [B, L, width].
  at::Tensor forward(const at::Tensor& x, int64_t layer, const Pass& pass) const;

  const CrossPart& cross() const { return cross_; }

 private:
  at::Tensor feed(const at::Tensor& x, const Pass& pass) const;
  template <class Part>
  at::Tensor add(const at::Tensor& x, const Norm& norm, const Pass& pass, const Part& part) const;

  NormPlace place_;
  std::shared_ptr<SelfAttention> attention_;
  std::shared_ptr<Norm> attention_norm_;
  std::shared_ptr<FeedForward> feed_forward_;
  std::shared_ptr<MixtureOfExperts> mixture_;
  std::shared_ptr<Norm> feed_forward_norm_;
  CrossPart cross_;
  double dropout_ = 0;
};

}  // namespace regard::layer
