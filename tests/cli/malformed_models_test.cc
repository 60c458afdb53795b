// Every model folder of scripts/make_malformed_models.py, given to the program: broken ones end in one
// sentence that names the file and what is wrong, with exit code 1, and soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "program.h"
#include "tests/io/files.h"

namespace regard::cli::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(MalformedModels, EndInOneSentence) {
  io::TemporaryFolder folder;
  const Outcome made = shell("python3 '" REGARD_SOURCE_DIR "/scripts/make_malformed_models.py' '" +
                             (folder / "models").string() + "'");
  ASSERT_EQ(made.code, 0) << made.err;
  std::ifstream table(folder / "models/cases.tsv");
  size_t broken = 0;
  size_t good = 0;
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string name, verb, verdict, fragment;
    std::getline(fields, name, '\t');
    std::getline(fields, verb, '\t');
    std::getline(fields, verdict, '\t');
    std::getline(fields, fragment, '\t');
    SCOPED_TRACE(name);
    const Outcome outcome = run({verb, "--model", (folder / "models" / name).string(), "an animal"});
    if (verdict == "ok") {
      ++good;
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      continue;
    }
    ++broken;
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    const std::vector<std::string> lines = lines_of(outcome.err);
    ASSERT_THAT(lines, SizeIs(1)) << outcome.err;
    EXPECT_EQ(lines[0].rfind("regard: ", 0), 0u) << lines[0];
    EXPECT_THAT(lines[0], HasSubstr(fragment));
    EXPECT_THAT(lines[0], HasSubstr(name)) << "the file is not named";
    EXPECT_LT(lines[0].size(), 600u) << lines[0];
  }
  EXPECT_GE(good, 3u);
  EXPECT_GE(broken, 60u);
}

// A million letters: one word, and many. What is quadratic in them runs into the limit of `run`.
TEST(MillionLetters, AreTokensInAboutLinearTime) {
  REGARD_NEEDS_MODEL("minilm");
  io::TemporaryFolder folder;
  io::write_all(folder / "one_word", std::string(1'000'000, 'a'));
  std::string words;
  for (int64_t i = 0; i < 1'000'000; ++i) words += static_cast<char>('a' + i * i % 26);
  io::write_all(folder / "letters", words);
  for (const char* model : {"minilm", "smollm2", "e5"}) {
    if (!installed(model)) continue;
    for (const char* file : {"one_word", "letters"}) {
      SCOPED_TRACE(std::string(model) + ", " + file);
      const Outcome outcome = run({"tokens", "--model", model, "--file", (folder / file).string(), "--json"});
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_THAT(outcome.out, HasSubstr("\"ids\""));
    }
  }
}

}  // namespace
}  // namespace regard::cli::testing
