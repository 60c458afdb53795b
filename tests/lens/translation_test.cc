#include "regard/lens/translation.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "regard/io/npz.h"
#include "regard/model/rnn_translator.h"
#include "regard/model/transformer_translator.h"
#include "regard/text/load.h"
#include "tests/io/files.h"
#include "tests/model/translator_support.h"
#include "tests/support/letters_tokenizer.h"

namespace regard::lens {
namespace {

using model::testing::distance;
using model::testing::RandomWeights;

std::unique_ptr<text::Tokenizer> letters() {
  return text::tokenizer_from_json(regard::testing::letters_tokenizer(), "letters");
}

template <class Config>
Config sized() {
  Config config;
  config.vocabulary = 9;
  config.max_positions = 40;
  config.width = 8;
  config.bos = 0;
  config.eos = 1;
  config.pad = 2;
  config.encoder_layers = config.decoder_layers = 2;
  return config;
}

model::LoadedTranslator loaded(std::unique_ptr<model::Translator> translator) {
  model::LoadedTranslator out;
  out.name = "tiny";
  out.model = std::move(translator);
  out.tokenizer = letters();
  out.bos = 0;
  out.eos = 1;
  out.pad = 2;
  return out;
}

// So that there is something to look at: the end is written by the limit alone.
void never_end(const at::Tensor& bias) {
  bias.detach().select(0, 1).fill_(-100);
}

model::LoadedTranslator transformer() {
  auto config = sized<model::TransformerTranslatorConfig>();
  config.heads = 2;
  config.feed_forward = 8;
  const RandomWeights weights(1, 0.8);
  auto made = model::make_transformer_translator(config, weights);
  never_end(weights["lm_head.bias"]);
  return loaded(std::move(made));
}

model::LoadedTranslator rnn(model::RnnAttention attention) {
  auto config = sized<model::RnnTranslatorConfig>();
  config.embedding = config.readout = config.attention_size = 8;
  config.encoder_width = 4;
  config.attention = attention;
  const RandomWeights weights(2, 0.8);
  auto made = model::make_rnn_translator(config, weights);
  never_end(weights["generator.bias"]);
  return loaded(std::move(made));
}

model::TranslateOptions long_ones() {
  model::TranslateOptions options;
  options.max_tokens = 6;
  options.weights = true;
  return options;
}

TEST(Translation, ShowsEveryLayerOfATransformer) {
  const model::LoadedTranslator model = transformer();
  const TranslationReport report = look_at_translation(model, "a c e b", long_ones());
  const auto written = static_cast<int64_t>(report.written.size());
  ASSERT_EQ(written, 6);
  EXPECT_EQ(report.source, (std::vector<std::string>{"a", "c", "e", "b", "</s>"}));
  ASSERT_EQ(report.read.size(), report.written.size());
  EXPECT_EQ(report.read[0], "<s>");
  for (size_t i = 1; i < report.read.size(); ++i) EXPECT_EQ(report.read[i], report.written[i - 1]);
  ASSERT_EQ(report.maps.size(), 6U);
  std::vector<at::Tensor> cross;
  for (const TranslationMap& map : report.maps) {
    const int64_t rows = map.kind == "encoder" ? 5 : written, keys = map.kind == "decoder" ? written : 5;
    ASSERT_EQ(map.weights.sizes(), (std::vector<int64_t>{2, rows, keys})) << map.name();
    EXPECT_LE((map.weights.sum(-1) - 1).abs().max().item<double>(), 1e-5) << map.name();
    ASSERT_EQ(map.entropy.size(), 2U);
    for (int64_t h = 0; h < 2; ++h) {
      const at::Tensor w = map.weights[h].to(at::kDouble);
      EXPECT_NEAR(map.entropy[static_cast<size_t>(h)], (-at::xlogy(w, w).sum(-1)).mean().item<double>(),
                  1e-5);
    }
    if (map.kind == "decoder") {
      EXPECT_EQ(map.weights.triu(1).abs().max().item<double>(), 0.0);
    }
    if (map.kind == "cross") cross.push_back(map.weights);
  }
  // What the search says of the same steps.
  auto options = long_ones();
  options.eos = 1;
  options.pad = 2;
  const auto made = model::translate(*model.model, {{4, 6, 8, 5, 1}}, options).front();
  EXPECT_EQ(made.ids, report.translation.ids);
  EXPECT_LE(distance(made.weights, at::cat(cross).transpose(0, 1)), 1e-5);
  const nlohmann::json json = to_json(report);
  EXPECT_EQ(json["attention"].size(), 6U);
  EXPECT_EQ(json["attention"][4]["kind"], "cross");
  EXPECT_EQ(json["attention"][4]["weights"].size(), 2U);
  EXPECT_EQ(json["attention"][4]["weights"][0].size(), static_cast<size_t>(written));
  EXPECT_EQ(json["attention"][4]["weights"][0][0].size(), 5U);
}

TEST(Translation, NpzHoldsAllHeads) {
  const io::TemporaryFolder folder;
  const TranslationReport report = look_at_translation(transformer(), "a c e b", long_ones());
  write_npz(folder / "maps.npz", report);
  const io::Npz npz = io::Npz::open(folder / "maps.npz");
  for (const std::string kind : {"encoder", "decoder", "cross"}) {
    std::vector<at::Tensor> layers;
    std::vector<float> entropies;
    for (int64_t i = 0; i < 2; ++i) {
      const TranslationMap& map = *report.find(kind, i);
      layers.push_back(map.weights);
      entropies.insert(entropies.end(), map.entropy.begin(), map.entropy.end());
    }
    const at::Tensor want = at::stack(layers);
    EXPECT_EQ(npz.require(kind).shape, want.sizes().vec());
    EXPECT_TRUE(at::tensor(io::values<float>(npz.require(kind))).equal(want.flatten())) << kind;
    EXPECT_EQ(npz.require(kind + "_entropy").shape, (std::vector<int64_t>{2, 2}));
    EXPECT_EQ(io::values<float>(npz.require(kind + "_entropy")), entropies);
  }
  EXPECT_EQ(io::values<int64_t>(npz.require("ids")), report.translation.ids);
  EXPECT_THROW(write_npz(folder / "none.npz",
                         look_at_translation(rnn(model::RnnAttention::none), "a c e", long_ones())),
               std::invalid_argument);
}

TEST(Translation, OfAnRnnShowsWhatItHas) {
  const TranslationReport with =
      look_at_translation(rnn(model::RnnAttention::additive), "a c e", long_ones());
  ASSERT_EQ(with.written.size(), 6U);
  ASSERT_EQ(with.maps.size(), 1U);
  EXPECT_EQ(with.maps[0].name(), "cross 0");
  EXPECT_EQ(with.maps[0].weights.sizes(),
            (std::vector<int64_t>{1, static_cast<int64_t>(with.written.size()), 4}));
  EXPECT_EQ(cross_layers(*rnn(model::RnnAttention::additive).model), 1);
  EXPECT_EQ(cross_layers(*rnn(model::RnnAttention::none).model), 0);
  EXPECT_TRUE(look_at_translation(rnn(model::RnnAttention::none), "a c e", long_ones()).maps.empty());
}

TEST(Translation, AlignsByOneHeadOrTheMeanOfALayer) {
  // Two tokens, three layers of two heads, four source tokens.
  const at::Tensor weights = at::softmax(at::arange(48, at::kFloat).sin().view({2, 6, 4}) * 3, -1);
  const Alignment usual = align(weights, 3);
  EXPECT_EQ(usual.layer, "cross 1");
  EXPECT_TRUE(usual.soft.allclose((weights.select(1, 2) + weights.select(1, 3)) / 2));
  for (size_t t = 0; t < 2; ++t) {
    EXPECT_EQ(usual.hard[t], usual.soft[static_cast<int64_t>(t)].argmax().item<int64_t>());
  }
  const Alignment one = align(weights, 3, 2, 1);
  EXPECT_EQ(one.layer, "cross 2");
  EXPECT_TRUE(one.soft.equal(weights.select(1, 5)));
  EXPECT_TRUE(align(weights, 1).soft.allclose(weights.mean(1)));
  EXPECT_THROW(align(weights, 3, 3), std::invalid_argument);
  EXPECT_THROW(align(weights, 3, 0, 2), std::invalid_argument);
  EXPECT_THROW(align(weights, 0), std::invalid_argument);
}

}  // namespace
}  // namespace regard::lens
