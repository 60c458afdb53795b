// What the computed experiments find, against figures that were computed elsewhere, by another program, from
// other random numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "regard/lab/experiment.h"

namespace regard::lab {
namespace {

const Finding& finding(const Result& result, const std::string& words) {
  for (const Finding& one : result.findings) {
    if (one.claim.find(words) != std::string::npos) return one;
  }
  throw std::invalid_argument("no finding with " + words);
}

// Each verdict of a result, in order.
std::vector<std::string> verdicts(const Result& result) {
  std::vector<std::string> out;
  for (const Finding& one : result.findings) out.emplace_back(name(one.verdict));
  return out;
}

void expect_complete(const Result& result) {
  EXPECT_FALSE(result.tables.empty());
  for (const Table& table : result.tables) EXPECT_FALSE(table.rows.empty()) << table.name;
  for (const Finding& one : result.findings) {
    EXPECT_FALSE(one.claim.empty());
    EXPECT_FALSE(one.source.empty());
    EXPECT_FALSE(one.measured.empty());
  }
  EXPECT_FALSE(result.plots.empty());
}

TEST(LabScaling, HasTheFiguresOfFourHundredDrawsElsewhere) {
  const Result result = run(experiment("scaling"), {.seeds = 1});
  expect_complete(result);
  const Table& table = result.tables[0];
  struct Row {
    double variance, entropy, largest, trace, scaled_entropy, scaled_largest, scaled_trace;
  };
  const Row expected[] = {{3.9, 0.70, 0.22, 0.94, 0.90, 0.068, 0.984},
                          {16.0, 0.33, 0.53, 0.69, 0.90, 0.070, 0.982},
                          {63.5, 0.14, 0.78, 0.27, 0.90, 0.068, 0.981},
                          {257, 0.064, 0.88, 0.041, 0.90, 0.068, 0.981},
                          {1026, 0.027, 0.95, 0.0005, 0.90, 0.068, 0.981}};
  ASSERT_EQ(table.rows.size(), std::size(expected));
  for (size_t row = 0; row < std::size(expected); ++row) {
    // Means and medians of 400 draws: two standard errors of each side, and their last digit.
    EXPECT_NEAR(table.number(row, "var(q.k)") / expected[row].variance, 1, 0.15 / std::sqrt(row + 1.0))
        << row;
    EXPECT_NEAR(table.number(row, "H / ln n"), expected[row].entropy, 0.02) << row;
    EXPECT_NEAR(table.number(row, "max p"), expected[row].largest, 0.03) << row;
    EXPECT_NEAR(table.number(row, "median tr J"), expected[row].trace, 0.06) << row;
    EXPECT_NEAR(table.number(row, "scaled: H / ln n"), expected[row].scaled_entropy, 0.01) << row;
    EXPECT_NEAR(table.number(row, "scaled: max p"), expected[row].scaled_largest, 0.005) << row;
    EXPECT_NEAR(table.number(row, "scaled: median tr J"), expected[row].scaled_trace, 0.003) << row;
  }
  EXPECT_LT(table.number(4, "median tr J"), 0.01);
  const std::vector<std::string> found = verdicts(result);  // what is trained is not decided by one seed
  EXPECT_THAT(std::vector<std::string>(found.begin(), found.begin() + 3), ::testing::Each("confirmed"));
}

TEST(LabDispersion, HasTheFiguresOfTwoHundredDrawsElsewhere) {
  const Result result = run(experiment("dispersion"), {.seeds = 1});
  expect_complete(result);
  const Table& table = result.tables[0];
  const double weight[] = {0.94, 0.80, 0.49, 0.19, 0.057};
  const double nats[] = {0.35, 1.24, 3.27, 5.68, 7.60};
  const double by_log[] = {0.74, 0.80, 0.83, 0.84, 0.85};
  const double by_polynomial[] = {0.94, 0.98, 1.00, 0.77, 0.057};
  ASSERT_EQ(table.rows.size(), std::size(weight));
  for (size_t row = 0; row < std::size(weight); ++row) {
    EXPECT_NEAR(table.number(row, "plain: weight"), weight[row], 0.015) << row;
    EXPECT_NEAR(table.number(row, "plain: entropy"), nats[row], 0.05) << row;
    EXPECT_NEAR(table.number(row, "log-n: weight"), by_log[row], 0.02) << row;
    EXPECT_GT(table.number(row, "log-n: entropy"), 1.1) << row;
    EXPECT_LT(table.number(row, "log-n: entropy"), 1.5) << row;
    EXPECT_NEAR(table.number(row, "polynomial: weight"), by_polynomial[row], row == 3 ? 0.06 : 0.015) << row;
  }
  EXPECT_THAT(verdicts(result), ::testing::ElementsAre("confirmed", "confirmed", "refuted"));
}

TEST(LabSoftmax, RankRisesFromEightToSixtyFour) {
  const Result result = run(experiment("softmax"), {.quick = true, .seeds = 2});
  expect_complete(result);
  EXPECT_EQ(result.tables[0].number(0, "reads of x"), 2);  // naive
  EXPECT_EQ(result.tables[0].number(1, "reads of x"), 3);  // safe
  EXPECT_EQ(result.tables[0].number(2, "reads of x"), 2);  // online
  EXPECT_THAT(finding(result, "as it is written").measured, ::testing::HasSubstr("from a logit of 89 on"));
  const Table& ranks = result.tables[1];
  for (size_t row = 0; row < ranks.rows.size(); ++row) {
    if (ranks.number(row, "d_k") != 8) continue;
    EXPECT_EQ(ranks.number(row, "rank of Q K^T"), 8);
    EXPECT_EQ(ranks.number(row, "rank of softmax"), 64);
    EXPECT_EQ(ranks.number(row, "rank of linear attention"), 8);
  }
  EXPECT_THAT(verdicts(result),
              ::testing::ElementsAre("confirmed", "refuted", "confirmed", "confirmed", "refuted", "refuted"));
}

TEST(LabProjections, AreNeededForTheReasonsGivenButNotForAllOfThem) {
  const Result result = run(experiment("projections"), {.quick = true, .seeds = 2});
  expect_complete(result);
  EXPECT_THAT(verdicts(result), ::testing::ElementsAre("confirmed", "refuted", "confirmed", "refuted",
                                                       "confirmed", "refuted", "refuted"));
}

TEST(LabMixture, ElevenHoursAreElevenParts) {
  const Result result = run(experiment("mixture"), {.quick = true, .seeds = 1});
  expect_complete(result);
  const Table& table = result.tables[0];
  EXPECT_NEAR(table.number(0, "as attention gives it"), 2.0 / 11, 1e-6);
  EXPECT_NEAR(table.number(5, "as attention gives it"), 1.0 / 11, 1e-6);
  EXPECT_NEAR(table.number(14, "sum of the example"), 1.1, 1e-12);
  EXPECT_NEAR(table.number(16, "as attention gives it"), 0.5 / 1.1, 1e-6);
  const std::vector<std::string> found = verdicts(result);
  EXPECT_THAT(std::vector<std::string>(found.begin(), found.begin() + 7),
              ::testing::ElementsAre("confirmed", "confirmed", "refuted", "confirmed", "refuted", "confirmed",
                                     "confirmed"));
}

TEST(LabMixture, TheBestFewAreTakenInTheOrderOfTheirWeights) {
  const Table table = run(experiment("mixture"), {.quick = true, .seeds = 1}).tables[3];
  ASSERT_EQ(table.name, "mixture-shop-best");
  // The first thing has 3 of the wanted features, the next three 2 each: in the order of the shop.
  EXPECT_EQ(std::get<std::string>(table.rows[2][2]), "red shoe, blue shoe, red shirt");
  const double e = std::exp(1.0);
  const double all = e * e * e + 3 * e * e + e + 1;
  EXPECT_NEAR(table.number(2, "weight"), (e * e * e + 2 * e * e) / all, 1e-6);
  EXPECT_NEAR(table.number(2, "from exact"), 2 / (e + 2), 1e-6);
}

TEST(LabMasks, AreOppositeInTheTwoArticles) {
  const Result result = run(experiment("masks"), {});
  expect_complete(result);
  EXPECT_THAT(verdicts(result), ::testing::ElementsAre("refuted", "confirmed", "refuted"));
  EXPECT_EQ(std::get<std::string>(result.tables[1].rows[0][1]), "not a number");
  EXPECT_EQ(std::get<std::string>(result.tables[1].rows[1][1]), "even over all keys");
  EXPECT_EQ(std::get<std::string>(result.tables[1].rows[2][1]), "all 0");
}

TEST(LabLayout, SequenceFirstMixesTexts) {
  const Result result = run(experiment("layout"), {.seeds = 2});
  expect_complete(result);
  EXPECT_THAT(verdicts(result), ::testing::ElementsAre("refuted"));
}

TEST(LabParameters, AreCountedAsTheSizesSay) {
  const Result result = run(experiment("parameters"), {});
  expect_complete(result);
  EXPECT_THAT(verdicts(result), ::testing::ElementsAre("refuted"));
  const Table& table = result.tables[0];
  // 3 d^2 of 12 d^2.
  EXPECT_NEAR(table.number(table.rows.size() - 1, "Q, K, V"), 25, 1e-9);
  for (size_t row = 0; row < table.rows.size(); ++row) {
    EXPECT_NEAR(table.number(row, "Q, K, V") + table.number(row, "output") + table.number(row, "embeddings") +
                    table.number(row, "the rest"),
                100, 1e-9);
    const std::string title = std::get<std::string>(table.rows[row][0]);
    if (title.find("SmolLM2") == std::string::npos) continue;
    EXPECT_EQ(table.number(row, "parameters"), 134'515'008);
    EXPECT_NEAR(table.number(row, "Q, K, V"), 12.3, 0.05);
  }
}

TEST(LabCache, GrowsInProportionAndOnlyForKeysAndValues) {
  const Result result = run(experiment("cache"), {.quick = true});
  expect_complete(result);
  EXPECT_THAT(verdicts(result), ::testing::ElementsAre("refuted", "confirmed", "confirmed"));
  // 2 numbers of 4 bytes for each of 8 heads of 64.
  EXPECT_EQ(result.tables[0].number(0, "k and v: MHA"), 256 * 2 * 8 * 64 * 4);
  EXPECT_EQ(result.tables[0].number(0, "MLA"), 256 * (256 + 32) * 4);
  const Table& models = result.tables[2];
  for (size_t row = 0; row < models.rows.size(); ++row) {
    const std::string title = std::get<std::string>(models.rows[row][0]);
    if (title == "Llama 3 8B") {
      EXPECT_EQ(models.number(row, "bf16"), 32 * 2 * 8 * 128 * 2);
    } else if (title.find("SmolLM2") != std::string::npos) {
      EXPECT_EQ(models.number(row, "f32"), 30 * 2 * 3 * 64 * 4);
    } else if (title == "BERT base") {
      EXPECT_EQ(models.number(row, "f32"), 0);
    }
  }
}

TEST(LabPath, ReachesByAttentionAndFadesByAGru) {
  const Result result = run(experiment("path"), {.quick = true, .seeds = 2});
  expect_complete(result);
  EXPECT_EQ(finding(result, "fades").verdict, Verdict::confirmed);
  EXPECT_EQ(finding(result, "The path").verdict, Verdict::confirmed);
  const Table& paths = result.tables[1];
  EXPECT_EQ(paths.number(1, "layers"), 8);   // 63 positions by steps of 8
  EXPECT_EQ(paths.number(2, "layers"), 63);  // by steps of 1
  EXPECT_EQ(paths.number(3, "layers"), 6);   // by 1, 2, 4, 8, 16 and 32
}

}  // namespace
}  // namespace regard::lab
