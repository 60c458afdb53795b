// Mistakes of whoever types: one sentence on standard error, nothing on standard output, 2 where the command
// was wrong and 1 where the world was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "tests/io/files.h"

namespace regard::cli::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

void expect_refusal(const std::vector<std::string>& arguments, int code, const std::string& part) {
  SCOPED_TRACE(::testing::PrintToString(arguments));
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.code, code);
  EXPECT_EQ(outcome.out, "");
  const std::vector<std::string> said = lines_of(outcome.err);
  ASSERT_THAT(said, SizeIs(1)) << outcome.err;
  EXPECT_THAT(said[0], ::testing::StartsWith("regard: "));
  EXPECT_THAT(said[0], HasSubstr(part));
}

TEST(Usage, UnknownWordsGetTheNearestKnownOne) {
  expect_refusal({"lok", "x"}, 2, "unknown verb 'lok'; did you mean 'look'?");
  expect_refusal({"look", "--tokn", "it", "abc"}, 2, "unknown option '--tokn'; did you mean '--token'?");
  expect_refusal({"look", "--model", "minlm", "abc"}, 2, "did you mean 'minilm'?");
  expect_refusal({"look", "a", "b"}, 2,
                 "one argument too many: 'b' (quote a text of several words). See 'regard look --help'.");
}

TEST(Usage, OptionsThatContradictEachOtherAreRefusedBeforeAnyWork) {
  expect_refusal({"look", "abc", "--layer", "1"}, 2, "--layer and --head go together");
  expect_refusal({"look", "abc", "--words", "--tokens"}, 2, "--words and --tokens exclude each other");
  expect_refusal({"look", "abc", "--pieces", "a|b"}, 2, "--pieces gives the text");
  expect_refusal({"look", "abc", "--qkv", "x.npz"}, 2, "--qkv brings its own tokens");
  expect_refusal({"look", "abc", "--file", "x"}, 2, "the text was given twice");
  expect_refusal({"look", "abc", "--precision", "f8"}, 2, "f8");
  expect_refusal({"--threads", "0", "look", "abc"}, 2, "--threads");
}

TEST(Usage, FilesThatAreNotThereOrNoFiles) {
  io::TemporaryFolder folder;
  const std::string there = folder.path().string();
  expect_refusal({"look", "--file", there}, 1, "is a folder, not a text file");
  expect_refusal({"look", "--file", there + "/none"}, 1, "No such file or directory");
  expect_refusal({"look", "--model", there, "abc"}, 1, "config.json is missing");
  expect_refusal({"look", "--qkv", there}, 1, "is a folder");
  expect_refusal({"look", "--qkv", there + "/none.npz"}, 1, "No such file or directory");
}

TEST(Usage, TextsThatCannotBeLookedAt) {
  REGARD_NEEDS_MODEL("minilm");
  expect_refusal({"look", ""}, 2, "the text is empty");
  expect_refusal({"look", "ab\xff"}, 2, "not valid UTF-8 at byte 2");
  expect_refusal({"look", "the animal", "--token", "zebra"}, 2, "the text has no word 'zebra'");
  expect_refusal({"look", "the animal", "--layer", "9", "--head", "0"}, 2, "layer 9");
  expect_refusal({"look", "the animal", "--layer", "0", "--head", "12"}, 2, "12");
  expect_refusal({"score", "--model", "minilm", "x"}, 2, "no language model");
}

TEST(Usage, ALongTextIsRefusedWithBothNumbersOrCutAndSaid) {
  REGARD_NEEDS_MODEL("minilm");
  io::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 600; ++i) text += "word ";
  io::write_all(folder / "long", text);
  const std::string file = (folder / "long").string();
  expect_refusal({"look", "--file", file}, 2, "602 tokens; minilm reads at most 512");
  expect_refusal({"embed", "--file", file}, 2, "602 tokens; the model takes 256");
  const Outcome cut = run({"look", "--file", file, "--truncate"});
  EXPECT_EQ(cut.code, 0) << cut.err;
  EXPECT_THAT(cut.out, HasSubstr("The text was cut: 512 of 602 tokens were read."));
  const Outcome vector = run({"embed", "--file", file, "--truncate"});
  EXPECT_EQ(vector.code, 0);
  EXPECT_THAT(vector.err, HasSubstr("1 text was cut"));
}

TEST(Usage, AnOptionMayComeFromTheEnvironmentAndTheCommandLineWins) {
  How how;
  how.environment = {{"REGARD_MODEL", "nowhere"}};
  EXPECT_THAT(run({"look", "abc"}, how).err, HasSubstr("unknown model \"nowhere\""));
  EXPECT_THAT(run({"look", "abc", "--model", "elsewhere"}, how).err,
              HasSubstr("unknown model \"elsewhere\""));
}

}  // namespace
}  // namespace regard::cli::testing
