#include "regard/train/translation_score.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace regard::train {
namespace {

const nlohmann::json& golden() {
  static const nlohmann::json read = [] {
    std::ifstream file(REGARD_GOLDEN_DIR "/train/sacrebleu.json");
    return nlohmann::json::parse(file);
  }();
  return read;
}

BleuTokens tokens_of(const std::string& name) {
  return name == "zh" ? BleuTokens::chinese : name == "none" ? BleuTokens::spaces : BleuTokens::mteval_13a;
}

TEST(TranslationScore, BleuEqualsSacreBleu) {
  for (const auto& c : golden()["scores"]) {
    SCOPED_TRACE(c["name"]);
    const auto translations = c["translations"].get<std::vector<std::string>>();
    const auto references = c["references"].get<std::vector<std::vector<std::string>>>();
    const Bleu got = bleu(translations, references, tokens_of(c["tokens"]));
    EXPECT_NEAR(got.score, c["bleu"].get<double>(), 1e-9);
    EXPECT_NEAR(got.brevity_penalty, c["brevity_penalty"].get<double>(), 1e-12);
    EXPECT_EQ(got.length, c["length"].get<int64_t>());
    EXPECT_EQ(got.reference_length, c["reference_length"].get<int64_t>());
    for (size_t n = 0; n < 4; ++n)
      EXPECT_NEAR(got.precisions[n], c["precisions"][n].get<double>(), 1e-9) << n;
  }
}

TEST(TranslationScore, ChrfEqualsSacreBleu) {
  for (const auto& c : golden()["scores"]) {
    SCOPED_TRACE(c["name"]);
    EXPECT_NEAR(chrf(c["translations"].get<std::vector<std::string>>(),
                     c["references"].get<std::vector<std::vector<std::string>>>()),
                c["chrf"].get<double>(), 1e-9);
  }
}

TEST(TranslationScore, SentencesAreCutAsSacreBleuCutsThem) {
  for (const auto& c : golden()["tokens"]) {
    const auto text = c["text"].get<std::string>();
    EXPECT_EQ(bleu_tokens(text, BleuTokens::mteval_13a), c["t13a"].get<std::string>()) << text;
    EXPECT_EQ(bleu_tokens(text, BleuTokens::chinese), c["zh"].get<std::string>()) << text;
  }
}

TEST(TranslationScore, WhatCannotBeScoredIsRefused) {
  const std::vector<std::string> one{"a"};
  const std::vector<std::vector<std::string>> two{{"a"}, {"b"}};
  const std::vector<std::vector<std::string>> none{{}};
  const std::vector<std::vector<std::string>> good{{"a"}};
  EXPECT_THROW(bleu(one, two), std::invalid_argument);
  EXPECT_THROW(bleu({}, {}), std::invalid_argument);
  EXPECT_THROW(chrf(one, none), std::invalid_argument);
  const std::vector<std::string> broken{"\xFF"};
  EXPECT_THROW(bleu(broken, good), std::invalid_argument);
  EXPECT_THROW(chrf(broken, good), std::invalid_argument);
}

}  // namespace
}  // namespace regard::train
