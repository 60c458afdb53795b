#include "regard/lens/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "regard/lens/make_report.h"
#include "tests/lens/made.h"

namespace regard::lens {
namespace {

// Twelve tokens as words of 1 to 4 tokens.
std::vector<Unit> uneven_words() {
  return {{"[CLS]", 0, 1, true, false}, {"a", 1, 3, false, false}, {"b", 4, 1, false, false},
          {"c", 5, 4, false, false},    {".", 9, 1, false, true},  {"[SEP]", 10, 2, true, false}};
}

TEST(Units, MergedRowsStillSumToOne) {
  const RecordedLayer layer = made::random_layer(2, 1, 12, 8, false, 1);
  const std::vector<Unit> words = uneven_words();
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t u = 0; u < 6; ++u) {
      const std::vector<float> row = unit_row(layer, head, words, u);
      EXPECT_NEAR(std::accumulate(row.begin(), row.end(), 0.0), 1, 1e-5);
    }
  }
}

TEST(Units, KeysAreSummedAndQueriesAveraged) {
  const RecordedLayer layer = made::random_layer(1, 1, 12, 8, true, 2);
  const std::vector<float> row = unit_row(layer, 0, uneven_words(), 3);
  double expected = 0;
  for (int64_t i = 5; i < 9; ++i) {
    const std::vector<float> weights = layer.weights_row(0, i);
    expected += (weights[1] + weights[2] + weights[3]) / 4.0;
  }
  EXPECT_NEAR(row[1], expected, 1e-6);
}

TEST(Units, AColumnIsTheTransposeOfRows) {
  const RecordedLayer layer = made::random_layer(2, 2, 12, 8, true, 3);
  const std::vector<Unit> words = uneven_words();
  const std::vector<float> map = unit_map(layer, 1, words);
  for (size_t u = 0; u < words.size(); ++u) {
    const std::vector<float> column = unit_column(layer, 1, words, static_cast<int64_t>(u));
    for (size_t r = 0; r < words.size(); ++r) EXPECT_NEAR(column[r], map[r * words.size() + u], 1e-6);
  }
}

TEST(Units, HidingSpecialTokensRescalesTheRest) {
  std::vector<float> row{0.5F, 0.1F, 0.1F, 0.0F, 0.1F, 0.2F};
  EXPECT_NEAR(hide_special(row, uneven_words()), 0.7, 1e-6);
  EXPECT_THAT(
      row, testing::Pointwise(testing::FloatNear(1e-6F), {0.0F, 1.0F / 3, 1.0F / 3, 0.0F, 1.0F / 3, 0.0F}));
}

TEST(Units, ARowOfSpecialTokensOnlyBecomesZeroAndNotNan) {
  std::vector<float> row{0.5F, 0, 0, 0, 0, 0.5F};
  hide_special(row, uneven_words());
  EXPECT_THAT(row, testing::Each(0.0F));
}

TEST(FindUnit, TakesAWordItsOccurrenceOrAPosition) {
  const Recording recording = made::recording({"The", "cat", "saw", "the", "cat", "7"},
                                              {made::random_layer(1, 1, 6, 4, false, 4)}, false);
  const auto find = [&](const std::string& wanted) { return find_unit(recording, recording.words, wanted); };
  EXPECT_EQ(find("cat"), 1);
  EXPECT_EQ(find("cat#2"), 4);
  EXPECT_EQ(find("the"), 3);  // the same case first
  EXPECT_EQ(find("CAT"), 1);
  EXPECT_EQ(find("7"), 5);  // a word of the text comes before a position
  EXPECT_EQ(find("2"), 2);
  EXPECT_THROW(find("cat#3"), std::invalid_argument);
  EXPECT_THROW(find("dog"), std::invalid_argument);
  EXPECT_THROW(find("6"), std::invalid_argument);
}

}  // namespace
}  // namespace regard::lens
