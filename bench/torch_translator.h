#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformer.h>

#include <memory>
#include <vector>

#include "regard/model/translator.h"
#include "regard/model/translator_config.h"
#include "regard/model/weight_source.h"
#include "regard/train/parameters.h"

namespace regard::bench {

// Whether libtorch's nn::Transformer can be the same function: LayerNorm, after each part; relu or gelu; one
// probability of dropout. Throws std::invalid_argument saying what is to be set.
void check_torch_translator(const model::TransformerTranslatorConfig& config);

// The Transformer translator as people write it with libtorch's own modules: nn::Embedding, nn::Transformer,
// nn::Linear, torch's autograd throughout. It keeps no keys and values: each step of a decoding computes the
// whole text again.
class TorchTranslator final : public model::Translator, public torch::nn::Module {
 public:
  // Parameters by libtorch's names ("transformer.encoder.layers.0.self_attn.in_proj_weight").
  TorchTranslator(const model::TransformerTranslatorConfig& config, const model::WeightSource& weights);

  // Takes the numbers of our translator of this config, by their published names.
  void begin_as(const std::vector<train::Parameters::Named>& parameters);

  int64_t vocabulary() const override { return config_.vocabulary; }
  int64_t max_positions() const override { return config_.max_positions; }
  int64_t cross_heads() const override { return 0; }  // its modules hand no weights out
  std::vector<std::string> attention_names() const override { return {}; }

  at::Tensor hidden(const model::Source& source, const at::Tensor& target, layer::Context& context) override;
  at::Tensor logits(const at::Tensor& hidden) override;
  std::unique_ptr<Decoding> begin(const model::Source& source, int64_t capacity,
                                  layer::Context& context) override;
  Step step(Decoding& decoding, const at::Tensor& ids, bool want_weights = false) override;

 private:
  // [B, L] -> [L, B, width], as libtorch's modules take it.
  at::Tensor embedded(torch::nn::Embedding& tokens, const at::Tensor& ids);

  model::TransformerTranslatorConfig config_;
  torch::nn::Transformer transformer_{nullptr};
  torch::nn::Embedding source_{nullptr}, target_{nullptr};  // tied: one
  torch::nn::Linear generator_{nullptr};                    // tied: none
  torch::nn::Dropout dropout_{nullptr};
  at::Tensor sinusoids_;  // [max_positions, 1, width]
};

}  // namespace regard::bench
