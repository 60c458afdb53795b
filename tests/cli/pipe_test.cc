// A reader that goes away (`| head -1`) ends the program at once and without a word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "small_qkv.h"
#include "tests/io/files.h"

namespace regard::cli::testing {
namespace {

// The codes of both sides follow what the reader printed.
Outcome piped(const std::string& command, const std::string& reader, const How& how = {}) {
  return shell(command + " | " + reader + R"(; echo "codes ${PIPESTATUS[*]}")", how);
}

TEST(ClosedPipe, TheFirstLineOfALookIsThereAndNothingIsSaid) {
  io::TemporaryFolder folder;
  write_small_qkv(folder / "in.npz", 200);
  How how;
  how.environment = {{"IN", (folder / "in.npz").string()}};
  const Outcome outcome = piped(R"("$REGARD" look --qkv "$IN" --received)", "head -1", how);
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2u) << outcome.out;
  EXPECT_THAT(lines[0], ::testing::HasSubstr("reads 200 tokens"));
  // 0 where all was written before the reader went.
  EXPECT_TRUE(lines[1] == "codes 0 0" || lines[1] == "codes 1 0") << lines[1];
  EXPECT_THAT(complaints(outcome), ::testing::IsEmpty());
}

TEST(ClosedPipe, AReaderThatIsGoneFromTheStartIsNoErrorToSpeakOf) {
  io::TemporaryFolder folder;
  write_small_qkv(folder / "in.npz");
  How how;
  how.environment = {{"IN", (folder / "in.npz").string()}};
  for (const char* command : {R"({ sleep 0.3; exec "$REGARD" look --qkv "$IN"; })",
                              R"({ sleep 0.3; exec "$REGARD" look --qkv "$IN" --json; })",
                              R"({ sleep 0.3; exec "$REGARD" models; })"}) {
    const Outcome outcome = piped(command, "true", how);
    EXPECT_EQ(outcome.out, "codes 1 0\n") << command;
    EXPECT_THAT(complaints(outcome), ::testing::IsEmpty()) << command;
  }
}

// Input without end: only the closed pipe can end these.
TEST(ClosedPipe, VerbsThatReadLineByLineStop) {
  REGARD_NEEDS_MODEL("minilm");
  How how;
  how.seconds = 60;
  Outcome outcome = piped(R"(yes '"a line"' | "$REGARD" tokens --jsonl)", "head -1", how);
  EXPECT_THAT(outcome.out, ::testing::HasSubstr("\"pieces\""));
  EXPECT_THAT(complaints(outcome), ::testing::IsEmpty());
  EXPECT_THAT(outcome.out, ::testing::EndsWith(" 1 0\n"));
  outcome = piped(R"(yes 'a line' | "$REGARD" embed)", "head -1", how);
  EXPECT_THAT(outcome.out, ::testing::StartsWith("{\"embedding\":["));
  EXPECT_THAT(complaints(outcome), ::testing::IsEmpty());
  EXPECT_THAT(outcome.out, ::testing::EndsWith(" 1 0\n"));
}

TEST(ClosedPipe, GenerationStops) {
  REGARD_NEEDS_MODEL("smollm2");
  How how;
  how.seconds = 100;
  // A hundred thousand tokens would take an hour.
  const Outcome outcome =
      piped(R"("$REGARD" run -n 100000 --ignore-end 'One, two,')", "head -c 1 > /dev/null", how);
  EXPECT_EQ(outcome.out, "codes 1 0\n");
  EXPECT_THAT(complaints(outcome), ::testing::IsEmpty());
}

}  // namespace
}  // namespace regard::cli::testing
