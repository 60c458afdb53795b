#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

#include "regard/train/recipe.h"
#include "tests/io/files.h"

namespace regard::train {
namespace {

using ::testing::HasSubstr;

class TranslatorRecipeFile : public ::testing::Test {
 protected:
  Recipe read(const std::string& text, const std::vector<std::string>& settings = {}) {
    io::write_all(folder_ / "recipe.toml", "kind = \"translator\"\n" + text);
    return read_recipe(folder_ / "recipe.toml", settings);
  }
  std::string refusal(const std::string& text, const std::vector<std::string>& settings = {}) {
    try {
      read(text, settings);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  }
  static const TranslatorRecipe& of(const Recipe& recipe) { return std::get<TranslatorRecipe>(recipe.task); }

  io::TemporaryFolder folder_;
};

constexpr const char* kLeast = "[data]\ntrain = \"a.tsv\"\n";

TEST_F(TranslatorRecipeFile, WhatIsNotSaidHasADefault) {
  const Recipe recipe = read(kLeast);
  EXPECT_EQ(of(recipe).data.train.at(0), folder_ / "a.tsv");
  EXPECT_EQ(of(recipe).data.vocabulary.size, 8000);
  const auto& model = std::get<model::TransformerTranslatorConfig>(of(recipe).model);
  EXPECT_EQ(model.width, 256);
  EXPECT_EQ(model.feed_forward, 1024);
  EXPECT_EQ(model.attention_dropout, model.dropout);
  EXPECT_EQ(recipe.train.best, Metric::loss);
  EXPECT_EQ(recipe.train.schedule.width, 256);
}

TEST_F(TranslatorRecipeFile, ARecurrentModelHasItsOwnKeys) {
  const Recipe recipe = read(kLeast, {"model.architecture=rnn", "model.attention=general", "model.width=96",
                                      "model.input_feeding=true", "data.vocabulary.kind=bpe"});
  const auto& model = std::get<model::RnnTranslatorConfig>(of(recipe).model);
  EXPECT_EQ(model.attention, model::RnnAttention::general);
  EXPECT_EQ(model.encoder_width, 48);
  EXPECT_EQ(model.attention_size, 96);
  EXPECT_TRUE(model.input_feeding);
  EXPECT_EQ(of(recipe).data.vocabulary.kind, text::VocabularyOptions::Kind::bpe);
  EXPECT_THAT(refusal(kLeast, {"model.architecture=rnn", "model.heads=2"}),
              HasSubstr("model.heads is not known"));
}

TEST_F(TranslatorRecipeFile, ATaskStandsInsteadOfFiles) {
  const Recipe recipe = read("[data]\ntask = \"recall\"\nlength = 7\nseed = 4\n");
  ASSERT_TRUE(of(recipe).data.generated.has_value());
  EXPECT_EQ(of(recipe).data.generated->kind, GeneratedTask::Kind::recall);
  EXPECT_EQ(of(recipe).data.generated->shortest, 7);
  EXPECT_EQ(of(recipe).data.generated->seed, 4u);
  EXPECT_EQ(recipe.train.best, Metric::accuracy);
  EXPECT_THAT(refusal("[data]\ntask = \"copy\"\ntrain = \"a.tsv\"\n"), HasSubstr("data.train is not known"));
}

TEST_F(TranslatorRecipeFile, WrongValuesNameThePlaceAndWhatIsAllowed) {
  EXPECT_THAT(refusal(""), HasSubstr("data.train is missing"));
  EXPECT_THAT(refusal(kLeast, {"train.length=5"}), HasSubstr("train.length is not known"));
  EXPECT_THAT(refusal(kLeast, {"train.batch_tokens=100"}), HasSubstr("allowed is 256 to"));
  EXPECT_THAT(refusal(kLeast, {"train.smoothing=even"}), HasSubstr("known are torch, annotated"));
  EXPECT_THAT(refusal(kLeast, {"train.best=ter"}), HasSubstr("known are loss, bleu"));
  EXPECT_THAT(refusal(kLeast, {"train.score_every=300"}), HasSubstr("multiple of validate_every (200)"));
  EXPECT_THAT(refusal(kLeast, {"model.architecture=cnn"}), HasSubstr("transformer"));
  EXPECT_THAT(refusal(kLeast, {"model.width=30"}), HasSubstr("multiple of heads (4)"));
  EXPECT_THAT(refusal(kLeast, {"model.norm=batch"}), HasSubstr("known are harvard, layer"));
  EXPECT_THAT(refusal(kLeast, {"model.architecture=rnn", "model.readout=7"}), HasSubstr("embedding (256)"));
  EXPECT_THAT(refusal(kLeast, {"model.architecture=rnn", "model.attention=dot", "model.encoder_width=7"}),
              HasSubstr("twice encoder_width"));
  EXPECT_THAT(refusal(kLeast, {"model.architecture=rnn", "model.input_feeding=true"}), HasSubstr("general"));
  EXPECT_THAT(refusal(kLeast, {"data.vocabulary.kind=words"}), HasSubstr("known are unigram, bpe"));
  EXPECT_THAT(refusal(kLeast, {"data.vocabulary.sise=5"}), HasSubstr("did you mean size?"));
  EXPECT_THAT(refusal(kLeast, {"data.tokenizer=x", "data.vocabulary.size=50"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refusal("[data]\ntask = \"sort\"\n"), HasSubstr("known are copy"));
}

// Every recipe of the repository can be read.
TEST(Recipes, AreAllReadable) {
  int64_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(REGARD_SOURCE_DIR) / "recipes")) {
    if (entry.path().extension() != ".toml") continue;
    EXPECT_NO_THROW(read_recipe(entry.path())) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 7);
}

// What the three recurrent and attentive translators have in common, so that their figures can be compared.
TEST(Recipes, TheThreeTranslatorsShareVocabularyAndData) {
  std::vector<TranslatorRecipe> all;
  for (const char* name : {"gru", "gru-attention", "transformer"}) {
    const Recipe recipe = read_recipe(std::filesystem::path(REGARD_SOURCE_DIR) / "recipes" /
                                      ("tatoeba-en-fr-" + std::string(name) + ".toml"));
    all.push_back(std::get<TranslatorRecipe>(recipe.task));
  }
  for (const TranslatorRecipe& one : all) {
    EXPECT_EQ(one.data.train, all[0].data.train);
    EXPECT_EQ(one.data.vocabulary.size, all[0].data.vocabulary.size);
    EXPECT_EQ(one.data.vocabulary.kind, all[0].data.vocabulary.kind);
    EXPECT_EQ(one.data.max_length, all[0].data.max_length);
  }
}

}  // namespace
}  // namespace regard::train
