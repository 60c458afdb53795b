// The sentences of the articles, given to the program: what it prints are the weights that its data hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "program.h"
#include "regard/text/display.h"

namespace regard::cli::testing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;

const char* const kPoles =
    "Several distributor transformers had fallen from the poles, and secondary wires were down.";
const char* const kModels =
    "Transformer models have emerged as the most widely used architecture in applications such as natural "
    "language "
    "processing and image classification.";

json data_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "look");
  arguments.emplace_back("--json");
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return json::parse(outcome.out);
}

int64_t unit_of(const json& report, const std::string& word) {
  for (size_t u = 0; u < report["units"].size(); ++u) {
    if (report["units"][u]["text"] == word) return static_cast<int64_t>(u);
  }
  ADD_FAILURE() << "no word " << word;
  return 0;
}

// The largest weight that any head gives from the chosen word to `word`.
double strongest(const json& report, const std::string& word) {
  return report["focus"]["strongest"][static_cast<size_t>(unit_of(report, word))][0]["weight"];
}

void expect_no_unknown(const json& report) {
  for (const json& token : report["tokens"]) EXPECT_FALSE(token["unknown"]) << token;
  EXPECT_EQ(report["warnings"], json::array());
}

// `it = 0.21 animal + ...`: the numbers after "=" and "+" of the first such line in a printed text.
double sum_of_mixture(const std::string& out, const std::string& word) {
  const size_t begin = out.find("\n    " + word + " = ");
  EXPECT_NE(begin, std::string::npos) << out;
  const size_t end = out.find("\n  head ", begin);
  double sum = 0;
  for (size_t at = begin; at + 2 < std::min(end, out.size()); ++at) {
    if ((out[at] == '=' || out[at] == '+') && out[at + 1] == ' ') sum += std::stod(out.substr(at + 2));
  }
  return sum;
}

// The second article lets `transformer` be rebuilt from pole, fallen and wires in one sentence, from model,
// language and image in the other.
TEST(TheTwoTransformers, AreMadeOfTheWordsOfTheirOwnSentence) {
  REGARD_NEEDS_MODEL("minilm");
  const json poles = data_of({kPoles, "--token", "transformers"});
  const json models = data_of({kModels, "--token", "Transformer"});
  expect_no_unknown(poles);
  expect_no_unknown(models);
  EXPECT_EQ(poles["focus"]["text"], "transformers");
  EXPECT_EQ(models["focus"]["text"], "Transformer");
  // Each of these words is seen by some head with half as much again as an even spread would give it, most
  // with far more.
  for (const char* word : {"poles", "fallen", "wires", "distributor"}) {
    EXPECT_GT(strongest(poles, word), 1.5 / static_cast<double>(poles["units"].size())) << word;
  }
  for (const char* word : {"models", "language", "image", "classification"}) {
    EXPECT_GT(strongest(models, word), 1.5 / static_cast<double>(models["units"].size())) << word;
  }
  EXPECT_NEAR(strongest(poles, "wires"), 0.31, 0.005);
  EXPECT_NEAR(strongest(poles, "fallen"), 0.21, 0.005);
  EXPECT_NEAR(strongest(models, "models"), 0.46, 0.005);
  EXPECT_NEAR(strongest(models, "language"), 0.20, 0.005);
}

TEST(TheTwoTransformers, ThePrintedLineSumsToOneAndHoldsTheNumbersOfTheData) {
  REGARD_NEEDS_MODEL("minilm");
  for (const auto& [sentence, word] :
       std::vector<std::pair<std::string, std::string>>{{kPoles, "transformers"}, {kModels, "Transformer"}}) {
    const json report = data_of({sentence, "--token", word});
    const Outcome printed = run({"look", sentence, "--token", word});
    ASSERT_EQ(printed.code, 0) << printed.err;
    EXPECT_NEAR(sum_of_mixture(printed.out, word), 1, 1e-9) << printed.out;
    const json& head = report["focus"]["heads"][0];
    std::string name("  L");
    name.append(std::to_string(head["layer"].get<int>()))
        .append("H")
        .append(std::to_string(head["head"].get<int>()));
    bool found = false;
    for (const std::string& line : lines_of(printed.out)) {
      if (!line.starts_with(name + " ")) continue;
      found = true;
      EXPECT_THAT(line, HasSubstr(head["top_text"].get<std::string>()));
    }
    EXPECT_TRUE(found) << name;
    for (const json& row : report["focus"]["heads"]) {
      double sum = 0;
      for (const double weight : row["weights"]) sum += weight;
      EXPECT_NEAR(sum, 1, 1e-5);
    }
  }
}

TEST(TheTwoTransformers, StandBesideEachOtherWithAWordEach) {
  REGARD_NEEDS_MODEL("minilm");
  const Outcome outcome = run(
      {"look", kPoles, "--token", "transformers", "--compare", kModels, "--compare-token", "Transformer"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("'transformers', mean of 72 heads"));
  EXPECT_THAT(outcome.out, HasSubstr("'Transformer', mean of 72 heads"));
  const Outcome without = run({"look", kPoles, "--token", "transformers", "--compare", kModels});
  EXPECT_EQ(without.code, 2);
  EXPECT_THAT(without.err, HasSubstr("--compare: the text has no word 'transformers'"));
}

TEST(TheTiredAnimal, HeadsTurnFromItToAnimal) {
  REGARD_NEEDS_MODEL("minilm");
  const json report = data_of(
      {"The animal didn't cross the street because it was too tired", "--token", "it", "--on", "animal"});
  std::vector<std::string> found;
  for (const json& head : report["focus"]["heads"]) {
    found.push_back(std::to_string(head["layer"].get<int>()) + "." + std::to_string(head["head"].get<int>()));
  }
  // Which of the two is first hangs on the third digit.
  EXPECT_THAT(std::vector<std::string>(found.begin(), found.begin() + 2),
              ::testing::UnorderedElementsAre("3.1", "5.11"));
  for (const json& head : {report["focus"]["heads"][0], report["focus"]["heads"][1]}) {
    EXPECT_NEAR(head["top_weight"], head["layer"] == 3 ? 0.64 : 0.65, 0.005);
  }
}

TEST(ChineseSentences, AreReadWithoutAnUnknownToken) {
  REGARD_NEEDS_MODEL("e5");
  for (const char* sentence : {"我吃了一个苹果", "我爱你"})
    expect_no_unknown(data_of({"--model", "e5", sentence}));
}

TEST(ChineseSentences, TheArticlesOwnSplitIsForced) {
  REGARD_NEEDS_MODEL("e5");
  const std::vector<std::string> command = {"--model", "e5",   "--pieces", "我|吃|了|一个|苹果",
                                            "--token", "一个", "--on",     "苹果"};
  const json report = data_of(command);
  expect_no_unknown(report);
  std::vector<std::string> pieces;
  for (const json& token : report["tokens"]) pieces.push_back(token["text"]);
  EXPECT_THAT(pieces, ::testing::ElementsAre("<s>", "我", "吃", "了", "一个", "苹果", "</s>"));
  EXPECT_EQ(report["focus"]["text"], "一个");
  // Each head that is named tells what it does, so that one that only looks at the next piece is seen to.
  std::vector<std::string> command_line = command;
  command_line.insert(command_line.begin(), "look");
  const std::string out = run(command_line).out;
  size_t next = 0;
  for (const json& head : report["focus"]["heads"]) {
    EXPECT_EQ(head["top_text"], "苹果");
    next += head["label"] == "next" ? 1 : 0;
  }
  EXPECT_GE(next, 2u);
  EXPECT_THAT(lines_of(out), Contains(::testing::MatchesRegex("  L2H6 +next 0\\.9.* +1\\.00 苹果.*")));
  EXPECT_NEAR(sum_of_mixture(out, "一个"), 1, 1e-9);
}

TEST(ChineseSentences, APieceThatTheVocabularyLacksIsNamed) {
  REGARD_NEEDS_MODEL("e5");
  const Outcome outcome = run({"look", "--model", "e5", "--pieces", "我|吃了一个"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("吃了一个"));
  EXPECT_EQ(lines_of(outcome.err).size(), 1u) << outcome.err;
}

}  // namespace
}  // namespace regard::cli::testing
