// `--compare`: two texts beside each other, printed, as data and on one page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"
#include "tests/io/files.h"

namespace regard::cli::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const char* const kTired = "The animal didn't cross the street because it was too tired";
const char* const kWide = "The animal didn't cross the street because it was too wide";

// What the page carries as data.
json data_of_page(const std::string& html) {
  const std::string open = "id=\"report\">";
  const size_t begin = html.find(open);
  const size_t end = html.find("</script>", begin);
  if (begin == std::string::npos || end == std::string::npos)
    throw std::runtime_error("the page has no data");
  return json::parse(html.substr(begin + open.size(), end - begin - open.size()));
}

TEST(Compare, OnePageHoldsBothTexts) {
  REGARD_NEEDS_MODEL("minilm");
  io::TemporaryFolder folder;
  const std::string page = (folder / "both.html").string();
  const Outcome outcome = run({"look", kTired, "--token", "it", "--compare", kWide, "--html", page});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("two texts side by side"));
  EXPECT_THAT(outcome.err, HasSubstr(page + ": open it in a browser; it needs no network"));
  const json texts = data_of_page(io::read_all(page))["texts"];
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[0]["text"], kTired);
  EXPECT_EQ(texts[1]["text"], kWide);
  for (const json& text : texts) {
    EXPECT_EQ(text["tokens"][text["focus"]["token"].get<size_t>()][0], "it");
    EXPECT_EQ(text["grid"].size(), 72u);
    EXPECT_FALSE(text["carried"].empty());
  }
  // The command that shows more of a text names that text.
  EXPECT_THAT(texts[0]["command"].get<std::string>(), HasSubstr("too tired"));
  EXPECT_THAT(texts[1]["command"].get<std::string>(), HasSubstr("too wide"));
}

TEST(Compare, WhatBelongsTogetherStandsOnOneLine) {
  REGARD_NEEDS_MODEL("minilm");
  const Outcome outcome =
      run({"look", kTired, "--token", "it", "--compare", "A cat slept.", "--compare-token", "cat"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  size_t titles = 0;
  for (const std::string& line : lines_of(outcome.out)) {
    const size_t bar = line.find(" │ ");
    if (bar == std::string::npos) continue;
    const std::string left = line.substr(0, bar);
    const std::string right = line.substr(bar);
    for (const char* title : {"mean of 72 heads", "heads most on another word", "mean of all heads"}) {
      const bool on_left = left.find(title) != std::string::npos;
      EXPECT_EQ(on_left, right.find(title) != std::string::npos) << line;
      titles += on_left ? 1 : 0;
    }
  }
  EXPECT_EQ(titles, 3u) << outcome.out;
}

TEST(Compare, ThePageShowsTheWeightsOfTheData) {
  REGARD_NEEDS_MODEL("minilm");
  io::TemporaryFolder folder;
  const std::string page = (folder / "both.html").string();
  const Outcome outcome =
      run({"look", kTired, "--token", "it", "--compare", kWide, "--html", page, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json printed = json::parse(outcome.out)["texts"];
  const json drawn = data_of_page(io::read_all(page))["texts"];
  for (size_t t = 0; t < 2; ++t) {
    EXPECT_EQ(printed[t]["focus"]["mean_weights"], drawn[t]["focus"]["mean"]);
    EXPECT_EQ(printed[t]["focus"]["heads"][0]["top_weight"], drawn[t]["focus"]["heads"][0]["weight"]);
  }
  EXPECT_NE(printed[0]["focus"]["mean_weights"], printed[1]["focus"]["mean_weights"]);
}

TEST(Compare, TextsFromAFileAndFromPiecesKeepTheirOwnCommands) {
  REGARD_NEEDS_MODEL("minilm");
  io::TemporaryFolder folder;
  io::write_all(folder / "text", kTired);
  const std::string page = (folder / "both.html").string();
  const Outcome outcome =
      run({"look", "--file", (folder / "text").string(), "--compare", kWide, "--html", page});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json texts = data_of_page(io::read_all(page))["texts"];
  EXPECT_EQ(texts[0]["command"], "regard look --file '" + (folder / "text").string() + "'");
  EXPECT_EQ(texts[1]["command"],
            "regard look 'The animal didn'\\''t cross the street because it was too wide'");
}

TEST(Compare, WhatBelongsToOneTextIsRefused) {
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--layer", "0", "--head", "0"}, {"--trace"}, {"--npz", "x"}, {"--png", "x"}}) {
    std::vector<std::string> arguments{"look", kTired, "--compare", kWide};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << more[0];
    EXPECT_THAT(outcome.err, HasSubstr("--compare shows two texts side by side")) << more[0];
    EXPECT_EQ(lines_of(outcome.err).size(), 1u);
  }
  const Outcome alone = run({"look", kTired, "--compare-token", "it"});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--compare-token"));
}

}  // namespace
}  // namespace regard::cli::testing
