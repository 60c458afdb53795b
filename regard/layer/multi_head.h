#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "regard/attention/mask.h"
#include "regard/autograd/attention.h"
#include "regard/layer/basic.h"

namespace regard::layer {

struct MultiHeadOptions {
  int64_t width = 1;
  int64_t heads = 1;
  int64_t kv_heads =
      0;  // 0: as many as heads (MHA); 1: MQA; between: GQA (Ainslie et al. 2023, arXiv 2305.13245)
  int64_t key_width = 0;    // of the text that keys come from, 0: width
  int64_t value_width = 0;  // likewise
  bool bias = true;
  bool extra_key = false;  // one more learned key and value, seen by all (torch's add_bias_kv)
  bool zero_key = false;   // one more key and value of zeros, seen by all (torch's add_zero_attn)
};

// Multi-head attention over one text or between two, for training (Vaswani et al. 2017, arXiv 1706.03762,
// section 3.2.2): project, split, attend, join, project. Inference with caches and published weights:
// Attention.
class MultiHead : public torch::nn::Module {
 public:
  explicit MultiHead(const MultiHeadOptions& options);

  // query: [B, Lq, width], key: [B, Lk, key_width], value: [B, Lk, value_width] -> [B, Lq, width]. mask and
  // extras speak of the Lk keys; extra keys come behind them (then a mask may be causal(top_left),
  // key_lengths or dense only). A bool mask says who may attend: the opposite of
  // torch.nn.MultiheadAttention's. weights, if asked for, becomes [B, H, Lq, all keys]: O(L^2), for looking
  // at.
  at::Tensor forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const attention::Mask& mask = {}, const autograd::AttentionExtras& extras = {},
                     at::Tensor* weights = nullptr) const;

  // Self-attention.
  at::Tensor forward(const at::Tensor& x, const attention::Mask& mask = {},
                     const autograd::AttentionExtras& extras = {}) const {
    return forward(x, x, x, mask, extras);
  }

 private:
  MultiHeadOptions options_;
  std::shared_ptr<Linear> q_, k_, v_, out_;
  at::Tensor extra_key_, extra_value_;  // [kv_heads * size]
};

}  // namespace regard::layer
