#include "regard/model/rnn_attention.h"

#include <ATen/ATen.h>

#include <string>

#include "regard/autograd/attention.h"
#include "regard/autograd/structured.h"

namespace regard::model {

at::Tensor dense_matrix(const WeightSource& weights, const std::string& name, int64_t rows, int64_t columns) {
  const layer::Weight weight = weights.matrix(name, rows, columns);
  return weight.dense().defined() ? weight.dense() : weight.gather(at::arange(rows, at::kLong));
}

RnnAttentionPart::RnnAttentionPart(const RnnTranslatorConfig& config, int64_t source_width,
                                   const WeightSource& weights)
    : kind_(config.attention) {
  const int64_t hidden = config.attention_size;
  switch (kind_) {
    case RnnAttention::none:
    case RnnAttention::dot:
      return;
    case RnnAttention::general:  // q^T (W k): of the keys, once
      key_ = dense_matrix(weights, "attention.key.weight", config.width, source_width);
      return;
    case RnnAttention::additive:
      query_ = dense_matrix(weights, "attention.query.weight", hidden, config.width);
      key_ = dense_matrix(weights, "attention.key.weight", hidden, source_width);
      break;
    case RnnAttention::concat: {  // W [q; k] = W_q q + W_k k
      const at::Tensor both = dense_matrix(weights, "attention.weight", hidden, config.width + source_width);
      query_ = both.narrow(1, 0, config.width);
      key_ = both.narrow(1, config.width, source_width);
      break;
    }
  }
  vector_ = dense_matrix(weights, "attention.vector.weight", 1, hidden);
}

RnnAttentionPart::Sources RnnAttentionPart::sources(const at::Tensor& states,
                                                    const at::Tensor& lengths) const {
  const at::Tensor keys = key_.defined() ? at::linear(states, key_) : states;
  return {keys.unsqueeze(1), states.unsqueeze(1), lengths};
}

at::Tensor RnnAttentionPart::mix(const at::Tensor& query, const Sources& sources,
                                 const at::Tensor& values) const {
  attention::Mask mask;
  autograd::AttentionExtras extras;
  if (sources.lengths.defined()) {
    mask = attention::Mask::key_lengths();
    extras.key_lengths = sources.lengths;
  }
  if (vector_.defined()) {
    return autograd::additive_attention(mask, query, sources.keys, values, vector_, extras);
  }
  attention::Spec spec;
  spec.scale = 1.0;
  spec.mask = mask;
  return autograd::attention(spec, query, sources.keys, values, extras);
}

at::Tensor RnnAttentionPart::forward(const at::Tensor& state, const Sources& sources,
                                     at::Tensor* weights) const {
  const at::Tensor query = (query_.defined() ? at::linear(state, query_) : state).unsqueeze(1);
  if (weights != nullptr) {
    // The weights of the same kernel: what it makes of values that are the unit vectors.
    const int64_t keys = sources.keys.size(2);
    const at::Tensor units = at::eye(keys, state.options()).expand({state.size(0), 1, keys, keys});
    *weights = mix(query, sources, units).squeeze(1);
  }
  return mix(query, sources, sources.values).squeeze(1);
}

}  // namespace regard::model
