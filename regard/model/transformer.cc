#include "regard/model/transformer.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "regard/layer/checkpointed_block.h"
#include "regard/layer/dropout.h"
#include "regard/model/shape_text.h"

namespace regard::model {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("model: " + what);
}

}  // namespace

Transformer::Transformer(TransformerParts parts) : parts_(std::move(parts)) {}

void Transformer::check(const Input& input, const layer::Context& context) const {
  const TransformerConfig& config = parts_.config;
  const at::Tensor& ids = input.ids;
  if (!ids.defined() || ids.dim() != 2 || ids.scalar_type() != at::kLong || ids.numel() == 0) {
    refuse("ids are " + shape_text(ids) + "; they must be int64 [batch, tokens], at least one of each");
  }
  if (context.position < 0)
    refuse("position is " + std::to_string(context.position) + "; it must not be negative");
  if (context.position + ids.size(1) > config.max_positions) {
    refuse("the text has " + std::to_string(context.position + ids.size(1)) + " tokens; the model takes " +
           std::to_string(config.max_positions));
  }
  if (input.type_ids.defined()) {
    if (!parts_.types) refuse("type ids are given; this model has none");
    if (input.type_ids.sizes() != ids.sizes() || input.type_ids.scalar_type() != at::kLong) {
      refuse("type ids are " + shape_text(input.type_ids) + "; they must be like ids, " + shape_text(ids));
    }
  }
  if (input.lengths.defined()) {
    const at::Tensor& lengths = input.lengths;
    if (lengths.dim() != 1 || lengths.size(0) != ids.size(0) || lengths.scalar_type() != at::kLong ||
        lengths.min().item<int64_t>() < 0 || lengths.max().item<int64_t>() > ids.size(1)) {
      refuse("lengths are " + shape_text(lengths) + "; they must be int64 [" + std::to_string(ids.size(0)) +
             "], from 0 to " + std::to_string(ids.size(1)));
    }
    if (context.cache != nullptr) refuse("a padded batch cannot be run with a cache");
  }
  if (input.segments.defined() || input.positions.defined()) {
    const auto fits = [&](const at::Tensor& tensor, at::ScalarType type) {
      return tensor.defined() && tensor.sizes() == ids.sizes() && tensor.scalar_type() == type;
    };
    if (!fits(input.segments, at::kInt) || !fits(input.positions, at::kLong)) {
      refuse("segments are " + shape_text(input.segments) + " and positions " + shape_text(input.positions) +
             "; packed documents need both, int32 and int64, like ids");
    }
    if (!parts_.config.causal || !parts_.rope || context.cache != nullptr)
      refuse("segments are given; only a decoder with rotary positions takes them, without a cache");
  }
  if (context.cache != nullptr && context.cache->length() != context.position) {
    refuse("position is " + std::to_string(context.position) + "; the cache holds " +
           std::to_string(context.cache->length()) + " tokens, and both must agree");
  }
  if (context.row_invariant) refuse("row_invariant is set; the matrix products here do not offer it yet");
}

at::Tensor Transformer::embedded(const Input& input, int64_t position) const {
  at::Tensor x = parts_.tokens.gather(input.ids);
  if (parts_.positions)
    x = x + parts_.positions.gather(at::arange(position, position + input.ids.size(1), at::kLong));
  if (parts_.types) {
    x = x + (input.type_ids.defined() ? parts_.types.gather(input.type_ids)
                                      : parts_.types.gather(at::zeros({1}, at::kLong)));
  }
  return parts_.embedding_norm ? parts_.embedding_norm->forward(x) : x;
}

at::Tensor Transformer::run(const Input& input, layer::Context& context, std::vector<at::Tensor>* states) {
  // Nothing is kept for gradients unless the caller trains.
  const at::AutoGradMode grad(context.training && at::GradMode::is_enabled());
  check(input, context);
  at::Tensor x = layer::dropout(embedded(input, context.position), parts_.config.dropout, context);
  layer::RopeTable table;
  layer::Pass pass;
  pass.context = &context;
  pass.key_lengths = input.lengths;
  pass.segments = input.segments;
  if (parts_.rope) {
    table = parts_.rope->table(context.position, input.ids.size(1));
    if (input.positions.defined())  // [B, L, 1, D / 2]
      table = {table.cos.index({input.positions}), table.sin.index({input.positions})};
    pass.rope = &table;
  }
  const auto layers = static_cast<int64_t>(parts_.blocks.size());
  for (int64_t i = 0; i < layers; ++i) {
    if (states != nullptr) states->push_back(x);
    const std::shared_ptr<layer::Block>& block = parts_.blocks[static_cast<size_t>(i)];
    x = context.checkpoint_layers ? layer::checkpointed(block, x, i, pass) : block->forward(x, i, pass);
    if (context.progress != nullptr) context.progress(context.progress_self, i + 1, layers);
  }
  if (parts_.final_norm) x = parts_.final_norm->forward(x);
  if (states != nullptr) states->push_back(x);
  return x;
}

at::Tensor Transformer::hidden(const Input& input, layer::Context& context) {
  return run(input, context, nullptr);
}

std::vector<at::Tensor> Transformer::states(const Input& input, layer::Context& context) {
  std::vector<at::Tensor> states;
  run(input, context, &states);
  return states;
}

at::Tensor Transformer::logits(const at::Tensor& hidden) {
  if (!has_head()) refuse("this model has no language-model head");
  if (parts_.vocabulary_head) return parts_.vocabulary_head->log_prob(hidden);
  at::Tensor x = hidden;
  if (parts_.head_transform) x = layer::activate(parts_.config.activation, parts_.head_transform->forward(x));
  if (parts_.head_norm) x = parts_.head_norm->forward(x);
  return parts_.head.linear(x, parts_.head_bias);
}

at::Tensor Transformer::pooled(const at::Tensor& hidden) const {
  if (!parts_.pooler) refuse("this model has no pooler");
  return at::tanh(parts_.pooler->forward(hidden.select(1, 0)));
}

std::unique_ptr<layer::KvCache> Transformer::make_cache(int64_t batch, int64_t capacity,
                                                        kernel::CacheType type) const {
  const TransformerConfig& config = parts_.config;
  if (!config.causal) return nullptr;
  layer::KvCache::Shape shape;
  shape.layers = config.layers;
  shape.batch = batch;
  shape.kv_heads = config.kv_heads;
  shape.key_size = shape.value_size = config.head_size;
  if (config.latent) {
    shape.kv_heads = 1;
    shape.key_size = config.latent->rank + config.latent->rope;
    shape.value_size = config.latent->rank;
  }
  shape.capacity = capacity;
  shape.windows = config.windows;
  shape.type = type;
  return std::make_unique<layer::KvCache>(shape);
}

}  // namespace regard::model
