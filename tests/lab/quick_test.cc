// Every `regard explain NAME --quick`, from the list itself: it ends, and has all that is printed, written
// and drawn.
#include <gtest/gtest.h>

#include <algorithm>

#include "regard/lab/experiment.h"
#include "regard/lab/plot.h"

namespace regard::lab {
namespace {

class LabQuick : public ::testing::TestWithParam<std::string> {};

TEST_P(LabQuick, EndsWithTablesFindingsAndAPicture) {
  const Result result = run(experiment(GetParam()), {.quick = true, .seeds = 1});
  ASSERT_FALSE(result.tables.empty());
  for (const Table& table : result.tables) {
    EXPECT_FALSE(table.rows.empty()) << table.name;
    EXPECT_NE(csv(table).find("\r\n"), std::string::npos);
  }
  ASSERT_FALSE(result.findings.empty());
  for (const Finding& one : result.findings) {
    EXPECT_FALSE(one.claim.empty());
    EXPECT_FALSE(one.source.empty()) << one.claim;
    EXPECT_FALSE(one.measured.empty()) << one.claim;
  }
  ASSERT_FALSE(result.plots.empty());
  EXPECT_GT(draw(result.plots).height(), 0);
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const Experiment& one : experiments()) out.push_back(one.name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Experiments, LabQuick, ::testing::ValuesIn(names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace regard::lab
