// `regard explain` and `regard data` as users run them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"
#include "tests/io/files.h"

namespace regard::cli::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ExplainVerb, ListsEveryExperimentWithItsClaim) {
  const Outcome outcome = run({"explain"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* name :
       {"path", "length", "mixture", "parameters", "cache", "projections", "frozen", "masks", "scores",
        "softmax", "dispersion", "scaling", "heads", "warm-up", "diversity", "layout"})
    EXPECT_THAT(outcome.out, HasSubstr(std::string(name) + " "));
  EXPECT_THAT(outcome.out, HasSubstr("claim: "));
  const Outcome json = run({"explain", "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out).size(), 16u);
}

TEST(ExplainVerb, AnUnknownExperimentNamesTheNearest) {
  const Outcome outcome = run({"explain", "scalling"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean 'scaling'?"));
  EXPECT_EQ(run({"explain", "masks", "--seeds", "0"}).code, 2);
}

TEST(ExplainVerb, PrintsTablesVerdictsAndWritesCsvAndAPicture) {
  const io::TemporaryFolder folder;
  const std::string out = (folder / "out").string();
  const Outcome outcome = run({"explain", "masks", "--quick", "--out", out});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("indicative"));
  EXPECT_THAT(outcome.out, HasSubstr("\nrefuted\n  claim: A mask means the same in both articles."));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b[")));  // no colour in a file
  EXPECT_THAT(io::read_all(folder / "out/masks-empty-row.csv"), HasSubstr("\r\nregard,all 0,0\r\n"));
  EXPECT_THAT(io::read_all(folder / "out/masks.png"), ::testing::StartsWith("\x89PNG"));
  // On a terminal lines keep to its width, and verdicts have a colour.
  How sixty;
  sixty.columns = 60;
  const Outcome narrow = run({"explain", "masks"}, sixty);
  EXPECT_THAT(narrow.out, HasSubstr("\x1b["));
  EXPECT_THAT(narrow.out, Not(HasSubstr("indicative")));
}

TEST(ExplainVerb, JsonHoldsTheSame) {
  const Outcome outcome = run({"explain", "layout", "--seeds", "1", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["name"], "layout");
  EXPECT_EQ(json["seeds"], 1);
  EXPECT_EQ(json["findings"][0]["verdict"], "refuted");
  EXPECT_EQ(json["tables"][0]["rows"].size(), 2u);
  EXPECT_GT(json["seconds"].get<double>(), 0);
}

TEST(DataVerb, ListsLicencesAndHowToHaveEachSet) {
  const Outcome outcome = run({"data", "list"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("regard data make shapes"));
  EXPECT_THAT(outcome.out, HasSubstr("CC-BY-2.0-FR"));
  EXPECT_GT(nlohmann::json::parse(run({"data", "list", "--json"}).out).size(), 8u);
}

TEST(DataVerb, MakesShapesAndSaysWhatItWrote) {
  const io::TemporaryFolder folder;
  const Outcome outcome =
      run({"data", "make", "shapes", "--out", (folder / "shapes").string(), "--seed", "2"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("test.qa.tsv"));
  EXPECT_THAT(io::read_all(folder / "shapes/valid.captions.tsv"), HasSubstr("\n499\ta "));
}

TEST(DataVerb, AWebSetIsExplainedAndPreparedNotFetched) {
  const io::TemporaryFolder folder;
  const Outcome explained = run({"data", "get", "tatoeba-en-fr"});
  EXPECT_EQ(explained.code, 2);
  EXPECT_THAT(explained.err, HasSubstr("https://www.manythings.org/anki/fra-eng.zip"));
  EXPECT_THAT(explained.err, HasSubstr("CC-BY-2.0-FR"));
  EXPECT_THAT(explained.err, HasSubstr("tatoeba.org"));
  io::write_all(folder / "input.txt", "to be or not to be\n");
  const Outcome prepared = run({"data", "get", "moby_dick", "--from", (folder / "input.txt").string(),
                                "--out", (folder / "out").string()});
  EXPECT_EQ(prepared.code, 0) << prepared.err;
  EXPECT_EQ(io::read_all(folder / "out/moby_dick.txt"), "to be or not to be\n");
  const Outcome absent = run({"data", "get", "moby_dick", "--from", (folder / "none.txt").string()});
  EXPECT_EQ(absent.code, 1);
  EXPECT_THAT(absent.err, HasSubstr("none.txt"));
}

TEST(DataVerb, WrongUseIsNamed) {
  const Outcome name = run({"data", "get", "tatoeba-en-fz"});
  EXPECT_EQ(name.code, 2);
  EXPECT_THAT(name.err, HasSubstr("did you mean 'tatoeba-en-fr'?"));
  EXPECT_EQ(run({"data"}).code, 2);
  EXPECT_EQ(run({"data", "make", "digits"}).code, 2);
  EXPECT_EQ(run({"data", "get", "shapes"}).code, 2);
}

}  // namespace
}  // namespace regard::cli::testing
