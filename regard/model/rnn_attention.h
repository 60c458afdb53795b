#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "regard/model/translator_config.h"
#include "regard/model/weight_source.h"

namespace regard::model {

// The tensor [rows, columns] of a weight, expanded if it lies in a smaller form.
at::Tensor dense_matrix(const WeightSource& weights, const std::string& name, int64_t rows, int64_t columns);

// How the state of an RNN decoder looks at the states of its encoder, one head.
class RnnAttentionPart {
 public:
  // Asks for "attention.key.weight", ...: of keys of `source_width`.
  RnnAttentionPart(const RnnTranslatorConfig& config, int64_t source_width, const WeightSource& weights);

  // What is looked at, made once for each source.
  struct Sources {
    at::Tensor keys;     // [B, 1, S, K]
    at::Tensor values;   // [B, 1, S, source_width]
    at::Tensor lengths;  // [B] int64; undefined: no padding
  };
  Sources sources(const at::Tensor& states, const at::Tensor& lengths) const;

  // state: [B, n, width], n that look at each source -> [B, n, source_width]. weights, if asked for, becomes
  // [B, n, S]; exactly 0 on padding.
  at::Tensor forward(const at::Tensor& state, const Sources& sources, at::Tensor* weights = nullptr) const;

 private:
  at::Tensor mix(const at::Tensor& query, const Sources& sources, const at::Tensor& values) const;

  RnnAttention kind_;
  at::Tensor query_, key_;  // [attention_size, width], [attention_size or width, source_width]
  at::Tensor vector_;       // [1, attention_size]
};

}  // namespace regard::model
