#include "bench/plain_llama.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace regard::bench {

PlainLlama::PlainLlama(const PlainLlamaOptions& options, const std::map<std::string, at::Tensor>& weights)
    : options_(options) {
  const at::NoGradGuard no_grad;
  const auto linear = [&](const std::string& name) {
    const at::Tensor& from = weights.at(name + ".weight");
    torch::nn::Linear module(torch::nn::LinearOptions(from.size(1), from.size(0)).bias(false));
    module->weight.copy_(from);
    std::string flat = name;
    for (char& c : flat) c = c == '.' ? '_' : c;
    return register_module(flat, module);
  };
  const auto vector = [&](const std::string& name) {
    std::string flat = name;
    for (char& c : flat) c = c == '.' ? '_' : c;
    return register_parameter(flat, weights.at(name + ".weight").clone());
  };
  tokens_ = register_module("tokens", torch::nn::Embedding(options.vocabulary, options.width));
  tokens_->weight.copy_(weights.at("model.embed_tokens.weight"));
  for (int64_t i = 0; i < options.layers; ++i) {
    const std::string in = "model.layers." + std::to_string(i) + ".";
    Layer layer;
    layer.q = linear(in + "self_attn.q_proj");
    layer.k = linear(in + "self_attn.k_proj");
    layer.v = linear(in + "self_attn.v_proj");
    layer.out = linear(in + "self_attn.o_proj");
    layer.gate = linear(in + "mlp.gate_proj");
    layer.up = linear(in + "mlp.up_proj");
    layer.down = linear(in + "mlp.down_proj");
    layer.attention_norm = vector(in + "input_layernorm");
    layer.feed_forward_norm = vector(in + "post_attention_layernorm");
    layers_.push_back(layer);
  }
  final_norm_ = vector("model.norm");
}

at::Tensor PlainLlama::norm(const at::Tensor& x, const at::Tensor& weight) const {
  return at::rms_norm(x, {options_.width}, weight, options_.epsilon);
}

at::Tensor PlainLlama::loss(const at::Tensor& ids, const at::Tensor& next) {
  const int64_t batch = ids.size(0), length = ids.size(1), size = options_.width / options_.heads;
  const at::Tensor powers = at::arange(0, size, 2, at::kFloat) / static_cast<double>(size);
  const at::Tensor angles = at::outer(at::arange(length, at::kFloat), at::pow(options_.rope_base, -powers));
  const at::Tensor both = at::cat({angles, angles}, -1);  // [L, D]
  const at::Tensor cos = both.cos(), sin = both.sin();
  const auto rotate = [&](const at::Tensor& x) {
    const at::Tensor turned = at::cat({-x.narrow(-1, size / 2, size / 2), x.narrow(-1, 0, size / 2)}, -1);
    return x * cos + turned * sin;
  };
  const auto split = [&](const at::Tensor& y) {
    return y.view({batch, length, options_.heads, size}).transpose(1, 2);
  };
  at::Tensor x = tokens_(ids);
  for (Layer& layer : layers_) {
    const at::Tensor a = norm(x, layer.attention_norm);
    const at::Tensor attended = at::scaled_dot_product_attention(
        rotate(split(layer.q(a))), rotate(split(layer.k(a))), split(layer.v(a)), {}, 0.0, true);
    x = x + layer.out(attended.transpose(1, 2).reshape({batch, length, options_.width}));
    const at::Tensor f = norm(x, layer.feed_forward_norm);
    x = x + layer.down(at::silu(layer.gate(f)) * layer.up(f));
  }
  const at::Tensor logits = at::linear(norm(x, final_norm_), tokens_->weight);
  return at::cross_entropy_loss(logits.flatten(0, 1), next.flatten());
}

}  // namespace regard::bench
