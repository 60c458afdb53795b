#include "regard/train/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "regard/io/error.h"
#include "tests/io/files.h"

namespace regard::train {
namespace {

using ::testing::HasSubstr;

class RecipeFile : public ::testing::Test {
 protected:
  Recipe read(const std::string& text, const std::vector<std::string>& settings = {}) {
    io::write_all(folder_ / "recipe.toml", text);
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

  static const LanguageModelRecipe& language_model(const Recipe& recipe) {
    return std::get<LanguageModelRecipe>(recipe.task);
  }

  io::TemporaryFolder folder_;
};

constexpr const char* kLeast = "[data]\ntrain = \"a.txt\"\n";

TEST_F(RecipeFile, WhatIsNotSaidHasADefault) {
  const Recipe recipe = read(kLeast);
  ASSERT_EQ(language_model(recipe).data.train.size(), 1u);
  EXPECT_EQ(language_model(recipe).data.train[0], folder_ / "a.txt");
  EXPECT_EQ(language_model(recipe).model.kv_heads, language_model(recipe).model.heads);
  EXPECT_EQ(language_model(recipe).model.feed_forward, 704);  // 8 / 3 of 256, up to a multiple of 32
  EXPECT_EQ(recipe.train.schedule.steps, recipe.train.steps);
}

TEST_F(RecipeFile, SettingsWinOverTheFile) {
  const Recipe recipe =
      read(std::string(kLeast) + "[train]\nsteps = 5\nrate = 1\n",
           {"train.steps=7", "data.tokenizer=bytes", "data.train=[\"b\", \"/c\"]", "model.heads=4"});
  EXPECT_EQ(recipe.train.steps, 7);
  EXPECT_EQ(recipe.train.schedule.rate, 1);
  EXPECT_EQ(language_model(recipe).data.train[1], "/c");
  EXPECT_EQ(language_model(recipe).model.heads, 4);
}

TEST_F(RecipeFile, TwoAreTheSameButForWhatMayChangeOnTheWay) {
  const std::string text = std::string(kLeast) + "[train]\nsteps = 5\nseed = 1\n";
  EXPECT_EQ(read(text).canonical, read(text, {"train.steps=9", "train.keep=1"}).canonical);
  EXPECT_NE(read(text).canonical, read(text, {"train.seed=2"}).canonical);
}

TEST_F(RecipeFile, WrongKeysNameTheNearestRightOne) {
  EXPECT_THAT(refusal(std::string(kLeast) + "[train]\nstep = 5\n"),
              HasSubstr("train.step is not known; did you mean steps?"));
  EXPECT_THAT(refusal(std::string(kLeast) + "[trein]\nsteps = 5\n"), HasSubstr("did you mean train?"));
  EXPECT_THAT(refusal(kLeast, {"model.layer=3"}), HasSubstr("did you mean layers?"));
  EXPECT_THAT(refusal(std::string(kLeast) + "[model]\nzzz = 5\n"), HasSubstr("known are"));
}

TEST_F(RecipeFile, WrongValuesNameThePlaceAndWhatIsAllowed) {
  EXPECT_THAT(refusal("[model]\nlayers = 2\n"), HasSubstr("data.train is missing"));
  EXPECT_THAT(refusal("[data]\ntask = \"sort\"\n"), HasSubstr("known are copy, reverse"));
  EXPECT_THAT(refusal("[data]\ntask = \"zipf_markov\"\ntrain = \"a\"\n"),
              HasSubstr("data.train is not known"));
  EXPECT_THAT(refusal(kLeast, {"train.steps=0"}), HasSubstr("train.steps is 0; allowed is 1 to"));
  EXPECT_THAT(refusal(kLeast, {"train.steps=1.5"}), HasSubstr("must be a whole number"));
  EXPECT_THAT(refusal(kLeast, {"train.rate=fast"}), HasSubstr("must be a number"));
  EXPECT_THAT(refusal(kLeast, {"train.rate=nan"}), HasSubstr("train.rate is nan"));
  EXPECT_THAT(refusal(kLeast, {"model.tied=1"}), HasSubstr("must be true or false"));
  EXPECT_THAT(refusal(kLeast, {"model.heads=7"}), HasSubstr("width (256)"));
  EXPECT_THAT(refusal(kLeast, {"model.kv_heads=3"}), HasSubstr("heads (8)"));
  EXPECT_THAT(refusal(kLeast, {"train.schedule=cosin"}), HasSubstr("known are constant, linear, cosine"));
  EXPECT_THAT(refusal(kLeast, {"train.optimizer=adamx"}), HasSubstr("known are adamw"));
  EXPECT_THAT(refusal(kLeast, {"model.initialisation=zero"}), HasSubstr("xavier_uniform"));
  EXPECT_THAT(refusal("kind = \"x\"\n"), HasSubstr("kind is \"x\""));
  EXPECT_THAT(refusal("train = 3\n[data]\ntrain = \"a\"\n"), HasSubstr("train must be a table"));
  EXPECT_THAT(refusal(kLeast, {"steps"}), HasSubstr("--set takes key=value"));
  EXPECT_THAT(refusal(std::string(kLeast) + "x = = 1"), HasSubstr("recipe.toml, line 3"));
  EXPECT_THROW(read_recipe(folder_ / "none.toml"), io::Error);
}

}  // namespace
}  // namespace regard::train
