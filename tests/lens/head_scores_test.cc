#include "regard/lens/head_scores.h"

#include <gtest/gtest.h>

#include <cmath>

#include "regard/lens/survey.h"
#include "regard/lens/units.h"
#include "tests/lens/made.h"

namespace regard::lens {
namespace {

using made::layer_of_logits;
using made::pointing;

HeadSurvey survey_one(const std::vector<float>& logits, const std::vector<std::string>& words, bool causal) {
  const auto n = static_cast<int64_t>(words.size());
  const Recording recording = made::recording(words, {layer_of_logits({logits}, n, causal)}, causal);
  return survey(recording, token_units(recording)).front();
}

constexpr int64_t kTokens = 40;

TEST(HeadScores, ShiftMatrixIsAPreviousTokenHead) {
  const auto head =
      survey_one(pointing(kTokens, [](int64_t i) { return i - 1; }), made::words(kTokens), true);
  EXPECT_NEAR(head.scores.previous, 1, 1e-5);
  EXPECT_NEAR(head.scores.self, 0, 1e-5);
  EXPECT_NEAR(head.scores.first, 1.0 / (kTokens - 1), 1e-5);  // row 1 looks at the first token
  EXPECT_TRUE(std::isnan(head.scores.next));                  // nothing after a token is visible
  EXPECT_EQ(head.label.label, Label::previous);
}

TEST(HeadScores, ShiftTheOtherWayIsANextTokenHeadWhereTheFutureIsVisible) {
  const auto head =
      survey_one(pointing(kTokens, [](int64_t i) { return i + 1; }), made::words(kTokens), false);
  EXPECT_NEAR(head.scores.next, 1, 1e-5);
  EXPECT_NEAR(head.scores.previous, 1.0 / kTokens / (kTokens - 1), 1e-5);  // the last row, which is even
  EXPECT_EQ(head.label.label, Label::next);
}

TEST(HeadScores, IdentityIsASelfHead) {
  const auto head = survey_one(pointing(kTokens, [](int64_t i) { return i; }), made::words(kTokens), false);
  EXPECT_NEAR(head.scores.self, 1, 1e-5);
  EXPECT_NEAR(head.scores.broad, 0, 1e-5);
  EXPECT_NEAR(head.entropy, 0, 1e-5);
  EXPECT_EQ(head.label.label, Label::self);
}

TEST(HeadScores, UniformWeightsAreBroadWithFullEntropy) {
  const auto head = survey_one(std::vector<float>(kTokens * kTokens), made::words(kTokens), false);
  EXPECT_NEAR(head.scores.broad, 1, 1e-5);
  EXPECT_NEAR(head.scores.previous, 1.0 / kTokens, 1e-6);
  EXPECT_NEAR(head.scores.self, 1.0 / kTokens, 1e-6);
  EXPECT_NEAR(head.entropy, std::log(static_cast<double>(kTokens)), 1e-5);
  EXPECT_NEAR(head.entropy_share, 1, 1e-5);
  EXPECT_EQ(head.label.label, Label::broad);
}

TEST(HeadScores, UniformCausalWeightsHaveHarmonicScores) {
  const auto head = survey_one(std::vector<float>(kTokens * kTokens), made::words(kTokens), true);
  double harmonic = 0;  // mean of 1 / (i + 1) over rows 1 .. n - 1
  double entropy = 0;
  for (int64_t i = 0; i < kTokens; ++i) {
    if (i >= 1) harmonic += 1.0 / static_cast<double>(i + 1) / (kTokens - 1);
    entropy += std::log(static_cast<double>(i + 1)) / kTokens;
  }
  EXPECT_NEAR(head.scores.previous, harmonic, 1e-5);
  EXPECT_NEAR(head.scores.self, harmonic, 1e-5);
  EXPECT_NEAR(head.scores.first, harmonic, 1e-5);
  EXPECT_NEAR(head.scores.broad, 1, 1e-5);
  EXPECT_NEAR(head.entropy, entropy, 1e-5);
  EXPECT_NEAR(head.entropy_share, 1, 1e-5);
}

TEST(HeadScores, RestingOnTheFirstTokenIsFirstInACausalModel) {
  const auto head = survey_one(pointing(kTokens, [](int64_t) { return 0; }), made::words(kTokens), true);
  EXPECT_NEAR(head.scores.first, 1, 1e-5);
  EXPECT_NEAR(head.sink, 1, 1e-5);
  EXPECT_EQ(head.label.label, Label::first);
}

TEST(HeadScores, RestingOnSpecialTokensIsSpecialInABidirectionalModel) {
  std::vector<std::string> words = made::words(kTokens);
  words.front() = "[CLS]";
  words.back() = "[SEP]";
  // Rows of special tokens do not count: they look elsewhere here.
  const auto head = survey_one(
      pointing(kTokens, [](int64_t i) { return i == 0       ? 5
                                               : i % 2 == 0 ? 0
                                                            : kTokens - 1; }), words, false);
  EXPECT_NEAR(head.scores.special, 1, 1e-5);
  EXPECT_NEAR(head.sink, 1, 1e-5);
  EXPECT_EQ(head.label.label, Label::special);
}

// A text that is repeated once: w0 ... w19 w0 ... w19.
std::vector<std::string> repeated() {
  std::vector<std::string> words = made::words(20);
  for (int i = 0; i < 20; ++i) words.push_back(std::string("w").append(std::to_string(i)));
  return words;
}

TEST(HeadScores, RepeatedTextShowsAnInductionHead) {
  const auto head =
      survey_one(pointing(40, [](int64_t i) { return i < 20 ? -1 : i - 19; }), repeated(), true);
  EXPECT_NEAR(head.scores.induction, 1, 1e-5);
  EXPECT_NEAR(head.scores.same_token, 0, 1e-5);
  EXPECT_EQ(head.label.label, Label::induction);
}

TEST(HeadScores, RepeatedTextShowsASameTokenHead) {
  const auto head =
      survey_one(pointing(40, [](int64_t i) { return i < 20 ? -1 : i - 20; }), repeated(), true);
  EXPECT_NEAR(head.scores.same_token, 1, 1e-5);
  EXPECT_EQ(head.label.label, Label::same_token);
}

TEST(HeadScores, ATextWithoutRepetitionCannotShowThose) {
  const auto head = survey_one(std::vector<float>(kTokens * kTokens), made::words(kTokens), true);
  EXPECT_TRUE(std::isnan(head.scores.same_token));
  EXPECT_TRUE(std::isnan(head.scores.induction));
  EXPECT_TRUE(std::isnan(head.scores.special));
}

TEST(HeadScores, BelowFourTenthsAHeadIsMixed) {
  PatternScores scores;
  scores.previous = 0.39F;
  scores.broad = 0.2F;
  EXPECT_EQ(label_of(scores, true).label, Label::mixed);
  EXPECT_FLOAT_EQ(label_of(scores, true).score, 0.39F);
  scores.previous = 0.41F;
  EXPECT_EQ(label_of(scores, true).label, Label::previous);
}

TEST(HeadScores, RowStatisticsAgreeWithTheLogarithm) {
  for (const size_t n : {1U, 15U, 16U, 17U, 300U}) {
    std::vector<float> weights = made::noise(n, 7);
    double sum = 0;
    for (float& w : weights) sum += w = std::exp(3 * w);
    double entropy = 0;
    double overlap = 0;
    for (float& w : weights) {
      w = static_cast<float>(w / sum);
      if (w > 0) entropy -= w * std::log(static_cast<double>(w));
      overlap += std::min<double>(w, 1.0 / static_cast<double>(n));
    }
    const RowStatistics row = row_statistics(weights, static_cast<int64_t>(n));
    EXPECT_NEAR(row.entropy, entropy, 2e-6) << n;
    EXPECT_NEAR(row.overlap, overlap, 2e-6) << n;
  }
}

}  // namespace
}  // namespace regard::lens
