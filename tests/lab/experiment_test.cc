// Tables, their CSV, the list of experiments and the pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "regard/lab/columns.h"
#include "regard/lab/plot.h"

namespace regard::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Table small_table() {
  Table table{"small", "A table", {text("name"), count("n"), number("share", 2)}, {}};
  table.add({std::string("a, \"b\""), int64_t{3}, 0.125});
  return table;
}

TEST(LabTable, ARowMustFitItsColumns) {
  Table table = small_table();
  EXPECT_THROW(table.add({std::string("a"), int64_t{3}}), std::invalid_argument);
  EXPECT_THROW(table.add({std::string("a"), 3.0, 0.5}), std::invalid_argument);
  EXPECT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.number(0, "n"), 3);
  EXPECT_EQ(table.number(0, "share"), 0.125);
  EXPECT_THROW(table.number(0, "name"), std::invalid_argument);
  EXPECT_THROW(table.number(0, "other"), std::invalid_argument);
}

TEST(LabTable, CsvQuotesWhatMustBeAndKeepsAllDigits) {
  Table table = small_table();
  table.add({std::string("c"), int64_t{-1}, 1.0 / 3});
  EXPECT_EQ(csv(table), "name,n,share\r\n\"a, \"\"b\"\"\",3,0.125\r\nc,-1,0.33333333333333331\r\n");
}

TEST(LabTable, NumbersAreShownWithTheColumnsDigits) {
  EXPECT_EQ(shown(Cell(0.125), number("", 2)), "0.12");
  EXPECT_EQ(shown(Cell(0.000123456), number("")), "0.000123");
  EXPECT_EQ(shown(Cell(int64_t{7}), count("")), "7");
}

TEST(LabExperiments, NamesAreDifferentAndEachHasAClaimAndASource) {
  std::set<std::string> names;
  for (const Experiment& one : experiments()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_FALSE(one.claim.empty());
    EXPECT_FALSE(one.source.empty());
    EXPECT_NE(one.measure, nullptr);
  }
}

TEST(LabExperiments, AnUnknownNameNamesTheNearest) {
  EXPECT_EQ(experiment("scaling").name, "scaling");
  EXPECT_THAT(
      [] { experiment("scalling"); },
      ThrowsMessage<std::invalid_argument>("there is no experiment 'scalling'; did you mean 'scaling'?"));
  EXPECT_THAT([] { experiment("zzzzzz"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("there are path, length, mixture")));
}

TEST(LabExperiments, NoSeedIsRefused) {
  EXPECT_THROW(run(experiment("masks"), {.seeds = 0}), std::invalid_argument);
}

TEST(LabPlot, TicksAreRoundAndInside) {
  using ::testing::DoubleNear;
  using ::testing::ElementsAre;
  EXPECT_THAT(ticks(0, 1, false),
              ElementsAre(DoubleNear(0, 1e-12), DoubleNear(0.2, 1e-12), DoubleNear(0.4, 1e-12),
                          DoubleNear(0.6, 1e-12), DoubleNear(0.8, 1e-12), DoubleNear(1, 1e-12)));
  EXPECT_THAT(ticks(4, 1024, true),
              ElementsAre(DoubleNear(10, 1e-9), DoubleNear(100, 1e-9), DoubleNear(1000, 1e-9)));
  EXPECT_THAT(ticks(2, 8, true), ElementsAre(DoubleNear(2, 1e-9), DoubleNear(5, 1e-9)));
  for (const double high : {1e-7, 0.3, 1.0, 7.0, 12345.0}) {
    const std::vector<double> found = ticks(0, high, false);
    EXPECT_GE(found.size(), 3u) << high;
    EXPECT_LE(found.size(), 11u) << high;
    EXPECT_LE(found.back(), high * (1 + 1e-9));
  }
}

int64_t colored(const io::Canvas& canvas, io::Color color) {
  int64_t count = 0;
  for (size_t i = 0; i < canvas.rgb().size(); i += 3) {
    const auto pixel = canvas.rgb().subspan(i, 3);
    count += std::equal(color.begin(), color.end(), pixel.begin()) ? 1 : 0;
  }
  return count;
}

constexpr io::Color kFirst = {0, 114, 178};
constexpr io::Color kSecond = {213, 94, 0};

TEST(LabPlot, DrawsEveryCurveAndLeavesOutWhatIsNoNumber) {
  Plot plot{
      "a plot", "x", "y", false, false, {}, {{"one", {0, 1, 2}, {0, 1, 4}}, {"two", {0, 1, 2}, {4, 1, 0}}}};
  const io::Canvas two = draw({plot});
  EXPECT_GT(colored(two, kFirst), 500);
  EXPECT_GT(colored(two, kSecond), 500);
  plot.curves[1].y = {NAN, NAN, INFINITY};
  EXPECT_LT(colored(draw({plot}), kSecond), 200);  // the legend alone
  plot.log_x = plot.log_y = true;                  // 0 has no place there
  EXPECT_GT(colored(draw({plot}), kFirst), 200);
  EXPECT_EQ(draw({plot, plot}).height(), 2 * two.height());
  EXPECT_THROW(draw({}), std::invalid_argument);
}

TEST(LabPlot, ABarTwiceAsLargeIsTwiceAsHigh) {
  const auto height = [](double value) {
    const Plot plot{"bars", "", "", false, false, {"a", "b"}, {{"", {}, {value, 0}}, {"", {}, {0, 10}}}};
    return colored(draw({plot}), kFirst);
  };
  const double base = static_cast<double>(height(0));
  EXPECT_NEAR(static_cast<double>(height(8)) - base, 2 * (static_cast<double>(height(4)) - base),
              0.02 * static_cast<double>(height(8)));
}

}  // namespace
}  // namespace regard::lab
