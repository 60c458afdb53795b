#include "regard/model/vit.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "regard/layer/checkpointed_block.h"
#include "regard/layer/dropout.h"

namespace regard::model {
namespace {

std::shared_ptr<layer::Linear> linear(const WeightSource& weights, const std::string& name, int64_t out,
                                      int64_t in) {
  return std::make_shared<layer::Linear>(weights.matrix(name + ".weight", out, in),
                                         weights.vector(name + ".bias", out));
}

std::shared_ptr<layer::Norm> norm(const WeightSource& weights, const std::string& name,
                                  const VitConfig& config) {
  return std::make_shared<layer::Norm>(kernel::NormForm::layer, config.epsilon,
                                       weights.vector(name + ".weight", config.width),
                                       weights.vector(name + ".bias", config.width));
}

std::shared_ptr<layer::Block> block(const WeightSource& weights, const std::string& name,
                                    const VitConfig& config) {
  const int64_t width = config.width;
  const std::string self = name + "attention.attention.";
  layer::AttentionParts parts;
  parts.q = linear(weights, self + "query", width, width);
  parts.k = linear(weights, self + "key", width, width);
  parts.v = linear(weights, self + "value", width, width);
  parts.out = linear(weights, name + "attention.output.dense", width, width);
  auto attention =
      std::make_shared<layer::Attention>(layer::AttentionOptions{.heads = config.heads,
                                                                 .kv_heads = config.heads,
                                                                 .head_size = width / config.heads,
                                                                 .dropout = config.attention_dropout},
                                         std::move(parts));
  auto feed_forward = std::make_shared<layer::FeedForward>(
      layer::Activation::gelu, linear(weights, name + "intermediate.dense", config.feed_forward, width),
      linear(weights, name + "output.dense", width, config.feed_forward));
  return std::make_shared<layer::Block>(
      layer::NormPlace::pre, std::move(attention), norm(weights, name + "layernorm_before", config),
      std::move(feed_forward), norm(weights, name + "layernorm_after", config), layer::CrossPart{},
      config.dropout);
}

at::Tensor taken(const WeightSource& weights, const std::string& name, at::IntArrayRef shape) {
  at::Tensor parameter = at::empty(shape, at::kFloat);
  weights.take(name, parameter);
  return parameter;
}

}  // namespace

at::Tensor patches_of(const at::Tensor& images, int64_t patch) {
  const int64_t height = images.size(2), width = images.size(3);
  if (height % patch != 0 || width % patch != 0) {
    throw std::invalid_argument("pictures of " + std::to_string(height) + " x " + std::to_string(width) +
                                " cannot be cut into patches of " + std::to_string(patch));
  }
  const int64_t rows = height / patch, columns = width / patch;
  return images.view({images.size(0), images.size(1), rows, patch, columns, patch})
      .permute({0, 2, 4, 1, 3, 5})
      .reshape({images.size(0), rows * columns, images.size(1) * patch * patch});
}

Vit::Vit(const VitConfig& config, const WeightSource& weights) : config_(config) {
  const std::string embeddings = "vit.embeddings.";
  const std::string projection = embeddings + "patch_embeddings.projection.";
  class_token_ = taken(weights, embeddings + "cls_token", {1, 1, config.width});
  if (config.positions)
    positions_ = taken(weights, embeddings + "position_embeddings", {1, 1 + config.patches(), config.width});
  patch_weight_ =
      taken(weights, projection + "weight", {config.width, config.channels, config.patch, config.patch});
  patch_bias_ = weights.vector(projection + "bias", config.width);
  for (int64_t i = 0; i < config.layers; ++i)
    blocks_.push_back(block(weights, "vit.encoder.layer." + std::to_string(i) + ".", config));
  final_norm_ = norm(weights, "vit.layernorm", config);
  head_ = linear(weights, "classifier", config.classes, config.width);
}

at::Tensor Vit::embedded(const at::Tensor& images, layer::Context& context) const {
  if (images.dim() != 4 || images.size(1) != config_.channels || images.size(2) != config_.image_height ||
      images.size(3) != config_.image_width) {
    throw std::invalid_argument("pictures of the model are [B, " + std::to_string(config_.channels) + ", " +
                                std::to_string(config_.image_height) + ", " +
                                std::to_string(config_.image_width) + "]");
  }
  const at::Tensor tokens =
      at::linear(patches_of(images, config_.patch), patch_weight_.flatten(1), patch_bias_);
  at::Tensor x = at::cat({class_token_.expand({images.size(0), 1, config_.width}), tokens}, 1);
  if (positions_.defined()) x = x + positions_;
  return layer::dropout(x, config_.dropout, context);
}

std::vector<at::Tensor> Vit::states(const at::Tensor& images, layer::Context& context) const {
  // Nothing is kept for gradients unless the caller trains.
  const at::AutoGradMode grad(context.training && at::GradMode::is_enabled());
  std::vector<at::Tensor> states = {embedded(images, context)};
  layer::Pass pass;
  pass.context = &context;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    states.push_back(context.checkpoint_layers ? layer::checkpointed(blocks_[i], states.back(), layer, pass)
                                               : blocks_[i]->forward(states.back(), layer, pass));
  }
  states.push_back(final_norm_->forward(states.back()));
  return states;
}

at::Tensor Vit::logits(const at::Tensor& hidden) const {
  return head_->forward(hidden.select(1, 0));
}

}  // namespace regard::model
