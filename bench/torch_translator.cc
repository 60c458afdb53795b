#include "bench/torch_translator.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "regard/layer/position.h"
#include "regard/model/translator_check.h"

namespace regard::bench {
namespace {

namespace nn = torch::nn;

// Without the further norm that nn::Transformer puts behind stacks of its own, which the first Transformer
// does not have where norms come last.
nn::Transformer make_transformer(const model::TransformerTranslatorConfig& config) {
  const auto set = [&](auto options) {
    options.dim_feedforward(config.feed_forward).dropout(config.dropout);
    if (config.activation == layer::Activation::gelu) {
      options.activation(torch::kGELU);
    } else {
      options.activation(torch::kReLU);
    }
    return options;
  };
  const auto encoder_layer = set(nn::TransformerEncoderLayerOptions(config.width, config.heads));
  const auto decoder_layer = set(nn::TransformerDecoderLayerOptions(config.width, config.heads));
  const nn::TransformerEncoder encoder(
      nn::TransformerEncoderOptions(nn::TransformerEncoderLayer(encoder_layer), config.encoder_layers));
  const nn::TransformerDecoder decoder(
      nn::TransformerDecoderOptions(nn::TransformerDecoderLayer(decoder_layer), config.decoder_layers));
  nn::Transformer made(nn::TransformerOptions(config.width, config.heads)
                           .custom_encoder(nn::AnyModule(encoder))
                           .custom_decoder(nn::AnyModule(decoder)));
  for (const auto& module : made->modules()) {
    if (auto* norm = module->as<nn::LayerNorm>()) norm->options.eps(config.epsilon);
  }
  return made;
}

// The published names of what lies above each other in one of libtorch's parameters.
std::vector<std::string> published_names(std::string name) {
  const bool decodes = name.find("decoder") != std::string::npos;
  const std::pair<std::string, std::string> kParts[] = {
      {"transformer.", "model."},
      {"shared.", "model.shared."},
      {"source.", "model.encoder.embed_tokens."},
      {"target.", "model.decoder.embed_tokens."},
      {"generator.", "lm_head."},
      {"multihead_attn", "encoder_attn"},
      {"linear1", "fc1"},
      {"linear2", "fc2"},
      {"norm1", "self_attn_layer_norm"},
      {"norm2", decodes ? "encoder_attn_layer_norm" : "final_layer_norm"},
      {"norm3", "final_layer_norm"},
  };
  for (const auto& [theirs, ours] : kParts) {
    if (const size_t at = name.find(theirs); at != std::string::npos) name.replace(at, theirs.size(), ours);
  }
  const std::string together = "in_proj_";
  const size_t at = name.find(together);
  if (at == std::string::npos) return {name};
  std::vector<std::string> names;
  for (const char* part : {"q_proj.", "k_proj.", "v_proj."})
    names.push_back(std::string(name).replace(at, together.size(), part));
  return names;
}

// [B, S], true where nothing may look; undefined without padding.
at::Tensor padding_of(const model::Source& source) {
  if (!source.lengths.defined()) return {};
  return at::arange(source.ids.size(1), at::kLong).unsqueeze(0) >= source.lengths.unsqueeze(1);
}

struct TorchDecoding final : model::Translator::Decoding {
  void select(const at::Tensor& rows) override {
    memory = memory.index_select(1, rows);
    if (padding.defined()) padding = padding.index_select(0, rows);
    ids = ids.index_select(0, rows);
  }

  at::Tensor memory;   // [S, N, width]
  at::Tensor padding;  // [N, S], or undefined
  at::Tensor ids;      // [N, written so far]
  int64_t capacity = 0;
};

}  // namespace

void check_torch_translator(const model::TransformerTranslatorConfig& config) {
  const auto refuse = [](const std::string& what) {
    throw std::invalid_argument("libtorch's nn::Transformer " + what);
  };
  if (config.norm_place != layer::NormPlace::post || config.norm != kernel::NormForm::layer)
    refuse("has LayerNorm after each part; add --set model.norm_place=post --set model.norm=layer");
  if (config.activation != layer::Activation::relu && config.activation != layer::Activation::gelu)
    refuse("knows two activations; model.activation must be \"relu\" or \"gelu\"");
  if (config.attention_dropout != config.dropout) {
    refuse("has one probability of dropout; model.attention_dropout must be that of model.dropout, " +
           std::to_string(config.dropout));
  }
}

TorchTranslator::TorchTranslator(const model::TransformerTranslatorConfig& config,
                                 const model::WeightSource& weights)
    : config_(config) {
  check_torch_translator(config);
  transformer_ = register_module("transformer", make_transformer(config));
  if (config.tied) {
    source_ = target_ = register_module("shared", nn::Embedding(config.vocabulary, config.width));
  } else {
    source_ = register_module("source", nn::Embedding(config.vocabulary, config.width));
    target_ = register_module("target", nn::Embedding(config.vocabulary, config.width));
    generator_ = register_module("generator", nn::Linear(config.width, config.vocabulary));
  }
  dropout_ = register_module("dropout", nn::Dropout(config.dropout));
  sinusoids_ = layer::sinusoid(0, config.max_positions, config.width).unsqueeze(1);
  for (auto& item : named_parameters()) weights.take(item.key(), item.value());
}

void TorchTranslator::begin_as(const std::vector<train::Parameters::Named>& parameters) {
  const at::NoGradGuard no_grad;
  for (auto& item : named_parameters()) {
    std::vector<at::Tensor> parts;
    for (const std::string& name : published_names(item.key())) {
      const auto found =
          std::ranges::find_if(parameters, [&](const auto& named) { return named.name == name; });
      if (found == parameters.end()) throw std::invalid_argument("there is no parameter " + name);
      parts.push_back(found->value);
    }
    item.value().copy_(at::cat(parts));
  }
}

at::Tensor TorchTranslator::embedded(nn::Embedding& tokens, const at::Tensor& ids) {
  const at::Tensor x = tokens->forward(ids.t()) * std::sqrt(static_cast<double>(config_.width));
  return dropout_->forward(x + sinusoids_.narrow(0, 0, ids.size(1)));
}

at::Tensor TorchTranslator::hidden(const model::Source& source, const at::Tensor& target,
                                   layer::Context& context) {
  const at::AutoGradMode grad(context.training && at::GradMode::is_enabled());
  model::check_source(source, config_.max_positions);
  model::check_target(target, source, config_.max_positions);
  train(context.training);
  if (context.training) at::manual_seed(context.dropout_seed);
  const at::Tensor padding = padding_of(source);
  const at::Tensor causal = nn::TransformerImpl::generate_square_subsequent_mask(target.size(1));
  return transformer_
      ->forward(embedded(source_, source.ids), embedded(target_, target), {}, causal, {}, padding, {},
                padding)
      .transpose(0, 1);
}

at::Tensor TorchTranslator::logits(const at::Tensor& hidden) {
  return config_.tied ? at::linear(hidden, target_->weight) : generator_->forward(hidden);
}

std::unique_ptr<model::Translator::Decoding> TorchTranslator::begin(const model::Source& source,
                                                                    int64_t capacity,
                                                                    layer::Context& /*context*/) {
  const at::NoGradGuard no_grad;
  model::check_source(source, config_.max_positions);
  model::check_capacity(capacity, config_.max_positions);
  train(false);
  auto decoding = std::make_unique<TorchDecoding>();
  decoding->padding = padding_of(source);
  decoding->memory =
      transformer_->encoder.forward(embedded(source_, source.ids), at::Tensor(), decoding->padding);
  decoding->ids = at::empty({source.ids.size(0), 0}, at::kLong);
  decoding->capacity = capacity;
  return decoding;
}

model::Translator::Step TorchTranslator::step(Decoding& begun, const at::Tensor& ids, bool /*want_weights*/) {
  const at::NoGradGuard no_grad;
  auto* decoding = dynamic_cast<TorchDecoding*>(&begun);
  if (decoding == nullptr) model::refuse_decoding();
  model::check_step(ids, decoding->ids.size(0), decoding->ids.size(1), decoding->capacity);
  train(false);
  decoding->ids = at::cat({decoding->ids, ids.unsqueeze(1)}, 1);
  const at::Tensor causal = nn::TransformerImpl::generate_square_subsequent_mask(decoding->ids.size(1));
  const at::Tensor x = transformer_->decoder.forward(embedded(target_, decoding->ids), decoding->memory,
                                                     causal, at::Tensor(), at::Tensor(), decoding->padding);
  return {logits(x.select(0, -1)), {}};
}

}  // namespace regard::bench
