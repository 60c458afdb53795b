// `regard bench translate` as users run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"
#include "tests/io/files.h"

namespace regard::cli::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class BenchTranslate : public ::testing::Test {
 protected:
  void SetUp() override {
    io::write_all(folder_ / "copy.toml", R"(
kind = "translator"
[data]
task = "copy"
symbols = 4
length = 4
texts = 100
valid_texts = 10
[model]
layers = 1
width = 16
heads = 2
dropout = 0.1
[train]
batch_tokens = 256
)");
  }
  Outcome bench(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"bench", "translate", (folder_ / "copy.toml").string(), "--steps",
                                          "3",     "--out",     (folder_ / "out").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  io::TemporaryFolder folder_;
  const std::vector<std::string> same_ = {"--set", "model.norm_place=post", "--set", "model.norm=layer"};
};

TEST_F(BenchTranslate, PrintsARowForEachModel) {
  const Outcome table = bench(same_);
  ASSERT_EQ(table.code, 0) << table.err;
  for (const char* what : {"tokens/s", "BLEU", "\nregard ", "\nlibtorch ", "times libtorch's"})
    EXPECT_THAT(table.out, HasSubstr(what));
  // Both are there already.
  std::vector<std::string> arguments = same_;
  arguments.emplace_back("--json");
  const Outcome json = bench(arguments);
  ASSERT_EQ(json.code, 0) << json.err;
  std::istringstream lines(json.out);
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["model"], "regard");
  EXPECT_EQ(rows[1]["model"], "libtorch");
  for (const auto& row : rows) {
    EXPECT_EQ(row["steps"], 3);
    EXPECT_GT(row["tokens_per_second"], 0);
    EXPECT_TRUE(row.contains("test_bleu"));
  }
}

TEST_F(BenchTranslate, SaysHowARecipeBecomesOneOfLibtorchs) {
  const Outcome outcome = bench({});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--set model.norm_place=post --set model.norm=layer"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("regard")));
}

}  // namespace
}  // namespace regard::cli::testing
