#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "regard/layer/block.h"
#include "regard/model/vit_config.h"
#include "regard/model/weight_source.h"

namespace regard::model {

// [B, channels, H, W] -> [B, patches, channels patch^2]: patches row by row, each channel by channel. A
// convolution whose kernel is its stride is a product with this. Throws std::invalid_argument where H or W is
// no multiple of patch.
at::Tensor patches_of(const at::Tensor& images, int64_t patch);

// A Vision Transformer (Dosovitskiy et al. 2021, arXiv 2010.11929): patches through one matrix, a class token
// in front, learned positions, blocks that normalise first, and one matrix over what the class token became.
class Vit {
 public:
  // By Hugging Face's names. Throws io::Error for a tensor that is missing or has another shape.
  Vit(const VitConfig& config, const WeightSource& weights);

  const VitConfig& config() const { return config_; }
  // images: [B, channels, height, width] float32, normalised as they were in training. States: after the
  // embedding, after each block and after the final norm, [B, 1 + patches, width] each. Throws
  // std::invalid_argument for images of another shape.
  std::vector<at::Tensor> states(const at::Tensor& images, layer::Context& context) const;
  // [B, classes], of the last of the states.
  at::Tensor logits(const at::Tensor& hidden) const;

 private:
  at::Tensor embedded(const at::Tensor& images, layer::Context& context) const;

  VitConfig config_;
  at::Tensor class_token_;   // [1, 1, width]
  at::Tensor positions_;     // [1, 1 + patches, width], or undefined
  at::Tensor patch_weight_;  // [width, channels, patch, patch]
  at::Tensor patch_bias_;    // [width]
  std::vector<std::shared_ptr<layer::Block>> blocks_;
  std::shared_ptr<layer::Norm> final_norm_;
  std::shared_ptr<layer::Linear> head_;
};

}  // namespace regard::model
