// A Chinese text on a terminal of 80 columns in colour: a grid and a map whose columns stand below each other
// although each character takes two cells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "program.h"
#include "screen.h"

namespace regard::cli::testing {
namespace {

using Cells = std::vector<Cell>;

const std::vector<std::string> kUnits = {"<s>", "我", "吃", "了", "一个", "苹果", "</s>"};
constexpr size_t kMap = 15;  // the map's first cell

std::vector<std::string> on_terminal(std::vector<std::string> more, int64_t columns = 80) {
  more.insert(more.begin(), {"look", "--model", "e5", "--pieces", "我|吃|了|一个|苹果"});
  How how;
  how.columns = columns;
  const Outcome outcome = run(more, how);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return lines_of(outcome.out);
}

TEST(ChineseTerminal, NoLinePassesTheWidth) {
  REGARD_NEEDS_MODEL("e5");
  for (const int64_t columns : {40, 80}) {
    for (const auto& more : std::vector<std::vector<std::string>>{
             {}, {"--received"}, {"--layer", "2", "--head", "6"}, {"--trace"}, {"--compare", "我爱你"}}) {
      const std::vector<std::string> lines = on_terminal(more, columns);
      EXPECT_GT(lines.size(), 20u);
      for (const std::string& line : lines)
        EXPECT_LE(cells_of(line).size(), static_cast<size_t>(columns)) << line;
    }
  }
}

TEST(ChineseTerminal, TheGridHasALabelAndAnEntropyForEachHeadAtItsPlace) {
  REGARD_NEEDS_MODEL("e5");
  const std::vector<std::string> lines = on_terminal({});
  const auto numbers = std::find_if(lines.begin(), lines.end(),
                                    [](const auto& line) { return line.find("H11") != std::string::npos; });
  ASSERT_GT(lines.end() - numbers, 12);
  for (int64_t layer = 0; layer < 12; ++layer) {
    const std::string& line = *(numbers + 1 + layer);
    const Cells cells = cells_of(line);
    const std::string name = text_at(cells, 0, 5);
    EXPECT_EQ(name.substr(name.find_first_not_of(' ')),
              std::string("L").append(std::to_string(layer)).append(" "));
    for (size_t head = 0; head < 12; ++head) {
      // A code of three or four letters in the label's colour, then a bar that shows the entropy.
      const size_t at = 5 + 6 * head;
      size_t letters = 0;
      while (at + letters < cells.size() && cells[at + letters].text.size() == 1 &&
             cells[at + letters].text != " ")
        ++letters;
      EXPECT_TRUE(letters == 3 || letters == 4) << line;
      EXPECT_THAT(cells[at].colour, ::testing::StartsWith("38;5;")) << line;
      const std::string bar = cells[at + letters].text;
      EXPECT_TRUE(bar >= "▁" && bar <= "█") << bar << " in " << line;
      EXPECT_EQ(cells[at + letters].colour, "2") << line;
    }
  }
}

TEST(ChineseTerminal, TheMapIsAlignedWithTheNamesOfItsRowsAndColumns) {
  REGARD_NEEDS_MODEL("e5");
  const std::vector<std::string> lines = on_terminal({"--layer", "2", "--head", "6"});
  size_t first = 0;
  while (first < lines.size() && lines[first].find("48;5;") == std::string::npos) ++first;
  ASSERT_LT(first + kUnits.size(), lines.size());
  for (size_t row = 0; row < kUnits.size(); ++row) {
    const std::string& line = lines[first + row];
    const Cells cells = cells_of(line);
    std::string name = text_at(cells, 0, kMap - 1);
    name.erase(0, name.find_first_not_of(' '));
    EXPECT_EQ(name, kUnits[row]);
    for (size_t cell = 0; cell < cells.size(); ++cell) {
      const bool inside = cell >= kMap && cell < kMap + 2 * kUnits.size();
      EXPECT_EQ(cells[cell].colour.find("48;5;") != std::string::npos, inside)
          << "cell " << cell << " of " << line;
    }
    // Both cells of a column have one colour.
    for (size_t column = 0; column < kUnits.size(); ++column) {
      EXPECT_EQ(cells[kMap + 2 * column], cells[kMap + 2 * column + 1]) << line;
    }
  }
  // The names of the columns are written downwards and end right above the map.
  for (size_t column = 0; column < kUnits.size(); ++column) {
    std::string name;
    for (size_t line = first - 4; line < first; ++line) {
      const std::string part = text_at(cells_of(lines[line]), kMap + 2 * column, 2);
      for (const char c : part) {
        if (c != ' ') name += c;
      }
    }
    EXPECT_EQ(name, kUnits[column]);
  }
}

// The map's colours are the weights: in each row the brightest cell is the largest weight of the data.
TEST(ChineseTerminal, TheMapShowsWhereTheWeightIs) {
  REGARD_NEEDS_MODEL("e5");
  const std::vector<std::string> lines = on_terminal({"--layer", "2", "--head", "6"});
  const Outcome outcome = run({"look", "--model", "e5", "--pieces", "我|吃|了|一个|苹果", "--token", "一个",
                               "--on", "苹果", "--layer", "2", "--head", "6", "--json"});
  const auto report = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(report["focus"]["heads"][0]["layer"], 2);
  ASSERT_EQ(report["focus"]["heads"][0]["head"], 6);
  const auto weights = report["focus"]["heads"][0]["weights"].get<std::vector<double>>();
  for (const std::string& line : lines) {
    const Cells cells = cells_of(line);
    if (line.find("48;5;") == std::string::npos || text_at(cells, 0, kMap).find("一个") == std::string::npos)
      continue;
    for (size_t column = 0; column < weights.size(); ++column) {
      // 220 is the yellow end of viridis in the cube of 256 colours.
      const std::string colour = cells[kMap + 2 * column].colour;
      EXPECT_EQ(weights[column] > 0.9, colour == "30;48;5;220") << colour << " " << weights[column];
    }
    return;
  }
  FAIL() << "no row 一个";
}

}  // namespace
}  // namespace regard::cli::testing
