#include "bench/plain_bert.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstring>

#include "regard/io/json.h"
#include "regard/io/safetensors.h"

namespace regard::bench {
namespace {

at::Tensor read(const io::Safetensors& file, const std::string& name) {
  const io::Tensor& tensor = file.require(name);
  at::Tensor values = at::empty(tensor.shape, at::kFloat);
  std::memcpy(values.data_ptr(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

}  // namespace

PlainBert::PlainBert(const std::string& folder) {
  const io::Json config = io::read_json(folder + "/config.json");
  const io::Safetensors file = io::Safetensors::open(folder + "/model.safetensors");
  const int64_t width = config.at("hidden_size");
  const int64_t inner = config.at("intermediate_size");
  const double epsilon = config.at("layer_norm_eps");
  heads_ = config.at("num_attention_heads");
  const at::NoGradGuard no_grad;

  const auto embedding = [&](const std::string& name) {
    const at::Tensor table = read(file, "embeddings." + name + ".weight");
    torch::nn::Embedding module(table.size(0), table.size(1));
    module->weight.copy_(table);
    return register_module(name, module);
  };
  int64_t count = 0;
  const auto linear = [&](const std::string& name, int64_t in, int64_t out) {
    torch::nn::Linear module(in, out);
    module->weight.copy_(read(file, name + ".weight"));
    module->bias.copy_(read(file, name + ".bias"));
    return register_module("linear" + std::to_string(count++), module);
  };
  const auto norm = [&](const std::string& name) {
    torch::nn::LayerNorm module(torch::nn::LayerNormOptions({width}).eps(epsilon));
    module->weight.copy_(read(file, name + ".weight"));
    module->bias.copy_(read(file, name + ".bias"));
    return register_module("norm" + std::to_string(count++), module);
  };
  tokens_ = embedding("word_embeddings");
  positions_ = embedding("position_embeddings");
  types_ = embedding("token_type_embeddings");
  norm_ = norm("embeddings.LayerNorm");
  const int64_t layers = config.at("num_hidden_layers");
  for (int64_t i = 0; i < layers; ++i) {
    const std::string at = "encoder.layer." + std::to_string(i) + ".";
    Layer layer;
    layer.q = linear(at + "attention.self.query", width, width);
    layer.k = linear(at + "attention.self.key", width, width);
    layer.v = linear(at + "attention.self.value", width, width);
    layer.out = linear(at + "attention.output.dense", width, width);
    layer.up = linear(at + "intermediate.dense", width, inner);
    layer.down = linear(at + "output.dense", inner, width);
    layer.attention_norm = norm(at + "attention.output.LayerNorm");
    layer.output_norm = norm(at + "output.LayerNorm");
    layers_.push_back(layer);
  }
  eval();
}

at::Tensor PlainBert::embed(const at::Tensor& ids, const at::Tensor& lengths) {
  const at::NoGradGuard no_grad;
  const int64_t batch = ids.size(0);
  const int64_t length = ids.size(1);
  at::Tensor mask;  // [B, 1, 1, L], true = may attend
  if (lengths.defined())
    mask = (at::arange(length).unsqueeze(0) < lengths.unsqueeze(1)).view({batch, 1, 1, length});

  at::Tensor x = tokens_(ids) + positions_(at::arange(length)) + types_(at::zeros_like(ids));
  x = norm_(x);
  const auto split = [&](const at::Tensor& y) { return y.view({batch, length, heads_, -1}).transpose(1, 2); };
  for (Layer& layer : layers_) {
    const at::Tensor attended =
        at::scaled_dot_product_attention(split(layer.q(x)), split(layer.k(x)), split(layer.v(x)), mask);
    x = layer.attention_norm(x + layer.out(attended.transpose(1, 2).reshape({batch, length, -1})));
    x = layer.output_norm(x + layer.down(at::gelu(layer.up(x))));
  }
  at::Tensor mean;
  if (lengths.defined()) {
    mean = (x * mask.view({batch, length, 1})).sum(1) / lengths.unsqueeze(1);
  } else {
    mean = x.mean(1);
  }
  return mean / mean.norm(2, -1, true);
}

}  // namespace regard::bench
