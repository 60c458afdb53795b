#include "regard/model/bert.h"

#include <ATen/ATen.h>

#include <string>

namespace regard::model {
namespace {

std::shared_ptr<layer::Linear> linear(const WeightSource& file, const std::string& name, int64_t out,
                                      int64_t in) {
  return std::make_shared<layer::Linear>(file.matrix(name + ".weight", out, in),
                                         file.vector(name + ".bias", out));
}

std::shared_ptr<layer::Norm> norm(const WeightSource& file, const std::string& name,
                                  const TransformerConfig& config) {
  // The first checkpoints were converted from TensorFlow with its names.
  const bool old = file.has(name + ".gamma");
  return std::make_shared<layer::Norm>(kernel::NormForm::layer, config.epsilon,
                                       file.vector(name + (old ? ".gamma" : ".weight"), config.width),
                                       file.vector(name + (old ? ".beta" : ".bias"), config.width));
}

std::shared_ptr<layer::Block> block(const WeightSource& file, const std::string& name,
                                    const TransformerConfig& config) {
  const int64_t width = config.width;
  const std::string self = name + "attention.self.";
  layer::AttentionParts parts;
  if (layer::Weight all = file.stacked({{self + "query.weight", width, {}},
                                        {self + "key.weight", width, {}},
                                        {self + "value.weight", width, {}}},
                                       width)) {
    const at::Tensor bias =
        at::cat({file.vector(self + "query.bias", width), file.vector(self + "key.bias", width),
                 file.vector(self + "value.bias", width)});
    parts.qkv = std::make_shared<layer::Linear>(std::move(all), bias);
  } else {
    parts.q = linear(file, self + "query", width, width);
    parts.k = linear(file, self + "key", width, width);
    parts.v = linear(file, self + "value", width, width);
  }
  parts.out = linear(file, name + "attention.output.dense", width, width);
  auto attention = std::make_shared<layer::Attention>(
      layer::AttentionOptions{
          .heads = config.heads, .kv_heads = config.kv_heads, .head_size = config.head_size, .causal = false},
      std::move(parts));
  auto feed_forward = std::make_shared<layer::FeedForward>(
      config.activation, linear(file, name + "intermediate.dense", config.feed_forward, width),
      linear(file, name + "output.dense", width, config.feed_forward));
  return std::make_shared<layer::Block>(
      layer::NormPlace::post, std::move(attention), norm(file, name + "attention.output.LayerNorm", config),
      std::move(feed_forward), norm(file, name + "output.LayerNorm", config));
}

}  // namespace

std::unique_ptr<Transformer> make_bert(const TransformerConfig& config, const WeightSource& file) {
  const std::string prefix = file.has("bert.embeddings.word_embeddings.weight") ? "bert." : "";
  const std::string embeddings = prefix + "embeddings.";
  TransformerParts parts;
  parts.config = config;
  parts.tokens = file.table(embeddings + "word_embeddings.weight", config.vocabulary, config.width);
  parts.positions = file.table(embeddings + "position_embeddings.weight", config.max_positions, config.width);
  parts.types = file.table(embeddings + "token_type_embeddings.weight", config.token_types, config.width);
  parts.embedding_norm = norm(file, embeddings + "LayerNorm", config);
  for (int64_t i = 0; i < config.layers; ++i) {
    parts.blocks.push_back(block(file, prefix + "encoder.layer." + std::to_string(i) + ".", config));
  }
  const std::string head = "cls.predictions.";
  if (file.has(head + "transform.dense.weight")) {
    parts.head_transform = linear(file, head + "transform.dense", config.width, config.width);
    parts.head_norm = norm(file, head + "transform.LayerNorm", config);
    const bool own = !config.tied_head && file.has(head + "decoder.weight");
    const std::string weight = own ? head + "decoder.weight" : embeddings + "word_embeddings.weight";
    parts.head = own || file.precision() == Precision::int8
                     ? file.matrix(weight, config.vocabulary, config.width)
                     : parts.tokens;
    parts.head_bias =
        file.vector(head + (file.has(head + "bias") ? "bias" : "decoder.bias"), config.vocabulary);
  }
  if (file.has(prefix + "pooler.dense.weight")) {
    parts.pooler = linear(file, prefix + "pooler.dense", config.width, config.width);
  }
  return std::make_unique<Transformer>(std::move(parts));
}

}  // namespace regard::model
