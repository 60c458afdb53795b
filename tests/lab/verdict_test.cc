// What may be said of numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "regard/lab/verdict.h"

namespace regard::lab {
namespace {

using Values = std::vector<double>;

TEST(LabVerdict, SpreadIsMeanAndDeviationWithOneLessBelow) {
  const Spread found = spread(Values{1, 2, 3, 6});
  EXPECT_DOUBLE_EQ(found.mean, 3);
  EXPECT_DOUBLE_EQ(found.deviation, std::sqrt(14.0 / 3));
  EXPECT_EQ(found.seeds, 4);
  EXPECT_EQ(spread(Values{5}).deviation, 0);
  EXPECT_THROW(spread(Values{}), std::invalid_argument);
  EXPECT_EQ(shown(found, 2), "3.00 +- 2.16");
  EXPECT_EQ(shown(spread(Values{5}), 1), "5.0");
}

TEST(LabVerdict, MedianIsTheMiddleOrTheMeanOfTwo) {
  EXPECT_EQ(median(Values{3, 1, 2}), 2);
  EXPECT_EQ(median(Values{4, 1, 2, 3}), 2.5);
  EXPECT_THROW(median(Values{}), std::invalid_argument);
}

TEST(LabVerdict, ADifferenceInsideTheSpreadIsNotDecided) {
  EXPECT_EQ(larger(Values{1, 2, 3}, Values{1.5, 2.5, 3.5}), Verdict::not_decided);
  EXPECT_EQ(larger(Values{1, 1.1, 1.2}, Values{2, 2.1, 2.2}), Verdict::refuted);
  EXPECT_EQ(larger(Values{2, 2.1, 2.2}, Values{1, 1.1, 1.2}), Verdict::confirmed);
}

TEST(LabVerdict, OneSeedOrEqualValuesOrANaNDecideNothing) {
  EXPECT_EQ(larger(Values{9}, Values{1, 1}), Verdict::not_decided);
  EXPECT_EQ(larger(Values{9, 9}, Values{1}), Verdict::not_decided);
  EXPECT_EQ(larger(Values{1, 1}, Values{1, 1}), Verdict::not_decided);
  EXPECT_EQ(larger(Values{NAN, 9}, Values{1, 1}), Verdict::not_decided);
}

TEST(LabVerdict, AllPartsMustHoldAndOneRefutesTheWhole) {
  using enum Verdict;
  EXPECT_EQ(all_of(std::vector{confirmed, confirmed}), confirmed);
  EXPECT_EQ(all_of(std::vector{confirmed, not_decided}), not_decided);
  EXPECT_EQ(all_of(std::vector{not_decided, refuted}), refuted);
  EXPECT_EQ(all_of(std::vector<Verdict>{}), not_decided);
  EXPECT_EQ(opposite(confirmed), refuted);
  EXPECT_EQ(opposite(refuted), confirmed);
  EXPECT_EQ(opposite(not_decided), not_decided);
  EXPECT_STREQ(name(not_decided), "not decided");
}

}  // namespace
}  // namespace regard::lab
