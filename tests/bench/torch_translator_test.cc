// libtorch's own Transformer as a translator is the same function as ours, and decodes as it reads.
#include "bench/torch_translator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "regard/model/transformer_translator.h"
#include "tests/model/translator_support.h"

namespace regard::bench {
namespace {

model::TransformerTranslatorConfig small(bool tied, layer::Activation activation) {
  model::TransformerTranslatorConfig config;
  config.vocabulary = 23;
  config.max_positions = 32;
  config.width = 16;
  config.tied = tied;
  config.dropout = config.attention_dropout = 0.1;
  config.encoder_layers = 2;
  config.decoder_layers = 3;
  config.heads = 4;
  config.feed_forward = 24;
  config.activation = activation;
  config.norm_place = layer::NormPlace::post;
  config.norm = kernel::NormForm::layer;
  return config;
}

std::vector<train::Parameters::Named> parameters_of(const model::testing::RandomWeights& weights) {
  std::vector<train::Parameters::Named> out;
  for (const std::string& name : weights.names()) out.push_back({name, weights[name]});
  return out;
}

TEST(TorchTranslator, EqualsOursWithEqualNumbers) {
  for (const bool tied : {true, false}) {
    for (const auto activation : {layer::Activation::relu, layer::Activation::gelu}) {
      const auto config = small(tied, activation);
      const model::testing::RandomWeights ours_begin(1), peer_begin(2);
      const auto ours = model::make_transformer_translator(config, ours_begin);
      TorchTranslator peer(config, peer_begin);
      const model::Source source = model::testing::padded_source(config.vocabulary);
      const at::Tensor target = model::testing::some_target(config.vocabulary);
      const auto logits = [&](model::Translator& model) {
        layer::Context context;
        return model.logits(model.hidden(source, target, context));
      };
      EXPECT_GT(model::testing::distance(logits(peer), logits(*ours)), 0.1);
      peer.begin_as(parameters_of(ours_begin));
      EXPECT_LE(model::testing::distance(logits(peer), logits(*ours)), 1e-4);
    }
  }
}

struct Dropped {
  double loss = 0, variance = 0;  // of the loss
  double gradient = 0;            // mean of its squared norm
};

Dropped over_passes(model::Translator& model, const std::vector<at::Tensor>& parameters, int64_t vocabulary) {
  constexpr int64_t kPasses = 800;
  const model::Source source = model::testing::padded_source(vocabulary);
  const at::Tensor target = model::testing::some_target(vocabulary);
  Dropped sum;
  for (int64_t pass = 0; pass < kPasses; ++pass) {
    layer::Context context;
    context.training = true;
    context.dropout_seed = static_cast<uint64_t>(pass);
    const at::Tensor loss = at::cross_entropy_loss(
        model.logits(model.hidden(source, target, context)).flatten(0, 1), target.flatten());
    for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
    loss.backward();
    for (const at::Tensor& parameter : parameters)
      sum.gradient += parameter.grad().square().sum().item<double>();
    const auto value = loss.item<double>();
    sum.loss += value;
    sum.variance += value * value;
  }
  const double mean = sum.loss / kPasses;
  return {mean, sum.variance / kPasses - mean * mean, sum.gradient / kPasses};
}

// Each draws masks of its own: alike in the mean and in how far they spread.
TEST(TorchTranslator, DropsAsMuchAsOurs) {
  auto config = small(true, layer::Activation::relu);
  config.dropout = config.attention_dropout = 0.4;
  const model::testing::RandomWeights begin(1);
  const auto ours = model::make_transformer_translator(config, begin);
  TorchTranslator peer(config, model::testing::RandomWeights(2));
  peer.begin_as(parameters_of(begin));
  std::vector<at::Tensor> parameters;
  for (const auto& named : parameters_of(begin)) parameters.push_back(named.value.requires_grad_());
  const Dropped found = over_passes(*ours, parameters, config.vocabulary);
  const Dropped expected = over_passes(peer, peer.parameters(), config.vocabulary);
  EXPECT_NEAR(found.loss, expected.loss, 0.03);
  EXPECT_NEAR(found.variance / expected.variance, 1, 0.2);
  EXPECT_NEAR(found.gradient / expected.gradient, 1, 0.1);
}

TEST(TorchTranslator, DecodesAsItReads) {
  const auto config = small(true, layer::Activation::relu);
  TorchTranslator model(config, model::testing::RandomWeights(3));
  model::testing::expect_steps_equal_the_whole(model, "libtorch");
  model::testing::expect_padding_changes_nothing(model, "libtorch");
  model::testing::expect_dropout_by_seed(model, "libtorch");
}

TEST(TorchTranslator, SaysWhatItCannotBe) {
  const auto config = small(true, layer::Activation::relu);
  auto before = config, other = config, dropped = config;
  before.norm_place = layer::NormPlace::pre;
  other.activation = layer::Activation::silu;
  dropped.attention_dropout = 0;
  check_torch_translator(config);
  for (const auto& wrong : {before, other, dropped})
    EXPECT_THROW(check_torch_translator(wrong), std::invalid_argument);
}

}  // namespace
}  // namespace regard::bench
