#include "regard/layer/multi_head.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <string>

namespace regard::layer {
namespace {

using attention::Mask;

// [B, L, H * size] -> [B, H, L, size].
at::Tensor split_heads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

// One more position behind all.
at::Tensor append(const at::Tensor& x, const at::Tensor& row) {
  return at::cat({x, row.expand({x.size(0), 1, x.size(2)})}, 1);
}

// The mask as a table over `keys` keys and `more` that everyone sees.
at::Tensor open_table(const Mask& mask, const autograd::AttentionExtras& extras, int64_t batch, int64_t rows,
                      int64_t keys, int64_t more) {
  at::Tensor table = at::ones({1, 1, rows, keys}, at::kBool);
  if (mask.terms().size() > 1)
    throw std::invalid_argument("MultiHead: with extra keys a mask may not be a union");
  for (const Mask::Term& term : mask.terms()) {
    for (const Mask::Part& part : term) {
      if (std::holds_alternative<attention::part::Causal>(part) &&
          std::get<attention::part::Causal>(part).align == attention::Align::top_left) {
        table = table & at::ones({rows, keys}, at::kBool).tril();
      } else if (std::holds_alternative<attention::part::KeyLengths>(part)) {
        table = table & (at::arange(keys) < extras.key_lengths.unsqueeze(1)).view({batch, 1, 1, keys});
      } else if (std::holds_alternative<attention::part::Dense>(part)) {
        at::Tensor dense = extras.dense_mask.to(at::kBool);
        while (dense.dim() < 4) dense = dense.unsqueeze(0);
        table = table & dense;
      } else {
        throw std::invalid_argument(
            "MultiHead: the mask is " + mask.to_string() +
            "; with extra keys it may be made of causal(top_left), key_lengths and dense");
      }
    }
  }
  const at::Tensor open = at::ones({table.size(0), table.size(1), rows, more}, at::kBool);
  return at::cat({table.expand({table.size(0), table.size(1), rows, keys}), open}, -1);
}

}  // namespace

MultiHead::MultiHead(const MultiHeadOptions& options) : options_(options) {
  MultiHeadOptions& o = options_;
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.key_width == 0) o.key_width = o.width;
  if (o.value_width == 0) o.value_width = o.width;
  if (o.heads < 1 || o.kv_heads < 1 || o.width % o.heads != 0 || o.heads % o.kv_heads != 0) {
    throw std::invalid_argument(
        "MultiHead: width must be a multiple of heads, and heads of kv_heads; they are " +
        std::to_string(o.width) + ", " + std::to_string(o.heads) + " and " + std::to_string(o.kv_heads));
  }
  const int64_t size = o.width / o.heads;
  q_ = register_module("q", std::make_shared<Linear>(o.width, o.width, o.bias));
  k_ = register_module("k", std::make_shared<Linear>(o.key_width, o.kv_heads * size, o.bias));
  v_ = register_module("v", std::make_shared<Linear>(o.value_width, o.kv_heads * size, o.bias));
  out_ = register_module("out", std::make_shared<Linear>(o.width, o.width, o.bias));
  if (!o.extra_key) return;
  extra_key_ = register_parameter("extra_key", at::empty({o.kv_heads * size}, at::kFloat).normal_(0, 0.02));
  extra_value_ =
      register_parameter("extra_value", at::empty({o.kv_heads * size}, at::kFloat).normal_(0, 0.02));
}

at::Tensor MultiHead::forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const Mask& mask, const autograd::AttentionExtras& extras,
                              at::Tensor* weights) const {
  at::Tensor k = k_->forward(key);
  at::Tensor v = v_->forward(value);
  if (options_.extra_key) {
    k = append(k, extra_key_);
    v = append(v, extra_value_);
  }
  if (options_.zero_key) {
    k = append(k, at::zeros({1}, k.options()));
    v = append(v, at::zeros({1}, v.options()));
  }
  attention::Spec spec;
  spec.mask = mask;
  autograd::AttentionExtras open = extras;
  const int64_t more = k.size(1) - key.size(1);
  if (more > 0 && !mask.sees_everything()) {
    open.dense_mask = open_table(mask, extras, query.size(0), query.size(1), key.size(1), more);
    open.key_lengths = at::Tensor();
    spec.mask = Mask::dense();
  }
  const at::Tensor q = split_heads(q_->forward(query), options_.heads);
  k = split_heads(k, options_.kv_heads);
  v = split_heads(v, options_.kv_heads);
  at::Tensor lse;
  const at::Tensor mixed = autograd::attention(spec, q, k, v, open, weights != nullptr ? &lse : nullptr);
  if (weights != nullptr) {
    std::vector<at::Tensor> maps;
    for (int64_t b = 0; b < q.size(0); ++b)
      for (int64_t h = 0; h < options_.heads; ++h)
        maps.push_back(autograd::weights(spec, q, k, lse, b, h, 0, q.size(2), 0, k.size(2), open));
    *weights = at::stack(maps).view({q.size(0), options_.heads, q.size(2), k.size(2)});
  }
  return out_->forward(mixed.transpose(1, 2).reshape({query.size(0), query.size(1), options_.width}));
}

}  // namespace regard::layer
