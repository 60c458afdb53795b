// A full disk: each writer says so in one sentence, exits with 1 and leaves neither a part of the file nor a
// temporary one; an older file of the same name stays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "small_qkv.h"
#include "tests/io/files.h"

namespace regard::cli::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Runs `line` where "$DISK" is a full file system of one MiB that leaves `pages` of 4 KiB, in a name space of
// its own: nothing stays mounted. The file "$DISK/old" is there before. After the line the folder is listed.
Outcome on_full_disk(const io::TemporaryFolder& folder, const std::string& line, int pages, How how = {}) {
  std::filesystem::create_directories(folder / "disk");
  how.environment.emplace_back("DISK", (folder / "disk").string());
  how.environment.emplace_back("LINE", line);
  how.environment.emplace_back("BYTES", std::to_string(4096 * pages));
  return shell(R"(unshare -rm bash -c '
      mount -t tmpfs -o size=1M regard-test "$DISK" || exit 99
      echo old > "$DISK/old"
      head -c "$BYTES" /dev/zero > "$DISK/room"
      cat /dev/zero > "$DISK/fill" 2> /dev/null
      rm "$DISK/room"
      eval "$LINE"; code=$?
      rm "$DISK/fill"; ls -A "$DISK"; cat "$DISK/old"
      exit $code')",
               how);
}

class FullDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (shell(R"(unshare -rm mount -t tmpfs -o size=4k regard-test /mnt)").code != 0) {
      GTEST_SKIP()
          << "a small file system cannot be mounted here: unshare -rm needs root or user name spaces";
    }
    write_small_qkv(folder_ / "in.npz", 64);
  }

  // The command writes into "$DISK/old".
  void check(const std::string& command, const How& how = {}) {
    for (const int pages : {0, 1}) {
      SCOPED_TRACE(command + ", " + std::to_string(pages) + " pages left");
      How with = how;
      with.environment.emplace_back("IN", (folder_ / "in.npz").string());
      const Outcome outcome = on_full_disk(folder_, command + " > /dev/null", pages, with);
      EXPECT_EQ(outcome.code, 1) << outcome.err;
      EXPECT_EQ(outcome.out, "old\nold\n") << "only the old file, as it was";
      EXPECT_THAT(complaints(outcome), ElementsAre("regard: " + (folder_ / "disk/old").string() +
                                                   ": cannot be written: No space left on device"));
    }
  }

  io::TemporaryFolder folder_;
};

TEST_F(FullDisk, ThePage) {
  check(R"("$REGARD" look --qkv "$IN" --html "$DISK/old")");
}

TEST_F(FullDisk, ThePicture) {
  check(R"("$REGARD" look --qkv "$IN" --layer 0 --head 0 --png "$DISK/old")");
}

TEST_F(FullDisk, TheArraysOfALook) {
  check(R"("$REGARD" look --qkv "$IN" --npz "$DISK/old")");
}

TEST_F(FullDisk, TheVectors) {
  REGARD_NEEDS_MODEL("minilm");
  How how;
  for (int i = 0; i < 4; ++i) how.input += "a line\n";  // 4 x 384 values: more than a page
  check(R"("$REGARD" embed --npy "$DISK/old")", how);
}

TEST_F(FullDisk, TheLogits) {
  REGARD_NEEDS_MODEL("smollm2");
  check(R"("$REGARD" score --logits "$DISK/old" 'The cat sat.')");
}

// The checkpoint that is there stays as it was, nothing of the new one is left, and with room again the same
// command goes on.
TEST_F(FullDisk, ATrainingLosesNothing) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the quick brown fox " + std::to_string(i % 7) + " jumps; ";
  io::write_all(folder_ / "text.txt", text);
  io::write_all(folder_ / "recipe.toml", R"(
[data]
train = "text.txt"
[model]
layers = 1
width = 32
heads = 8
[train]
length = 32
batch = 4
save_every = 7
keep = 1
)");
  std::filesystem::create_directories(folder_ / "disk");
  How how;
  how.environment.emplace_back("DISK", (folder_ / "disk").string());
  how.environment.emplace_back("RECIPE", (folder_ / "recipe.toml").string());
  const Outcome outcome = shell(R"sh(unshare -rm bash -c '
      mount -t tmpfs -o size=1M regard-test "$DISK" || exit 99
      train() { "$REGARD" train "$RECIPE" --out "$DISK/run" --set train.steps=$1 > /dev/null; }
      train 7 2> /dev/null || exit 98
      sum=$(md5sum < "$DISK/run/checkpoint-000007.safetensors")
      head -c 81920 /dev/zero > "$DISK/room"
      cat /dev/zero > "$DISK/fill" 2> /dev/null
      rm "$DISK/room"
      train 21; code=$?
      ls -A "$DISK/run"
      [ "$sum" = "$(md5sum < "$DISK/run/checkpoint-000007.safetensors")" ] && echo unchanged
      rm "$DISK/fill"
      train 21 2> /dev/null && ls "$DISK/run" | grep checkpoint
      exit $code')sh",
                                how);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(complaints(outcome),
              ElementsAre("regard: " + (folder_ / "disk/run/model.safetensors").string() +
                          ": cannot be written: No space left on device"));
  EXPECT_THAT(outcome.out,
              HasSubstr("checkpoint-000007.safetensors\nconfig.json\nevents.out.tfevents.0.regard\n"
                        "heads.csv\nlog.csv\nmodel.safetensors\ntokenizer.json\nvalidation.csv\n"
                        "unchanged\ncheckpoint-000021.safetensors\n"));
}

// Standard output is no file of ours, but its failure is said too.
TEST(FullOutput, IsSaidOnceAndIsAFailure) {
  io::TemporaryFolder folder;
  write_small_qkv(folder / "in.npz");
  const std::string in = (folder / "in.npz").string();
  How how;
  how.output = "/dev/full";
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"look", "--qkv", in},
                                             {"look", "--qkv", in, "--json"},
                                             {"models"},
                                             {"models", "--json"},
                                             {"--help"},
                                             {"--version"}}) {
    const Outcome outcome = run(arguments, how);
    EXPECT_EQ(outcome.code, 1) << arguments.front();
    EXPECT_THAT(complaints(outcome), ElementsAre("regard: standard output: No space left on device"))
        << arguments.front();
  }
}

TEST(FullOutput, DoesNotLoseAFileThatWasAskedForToo) {
  io::TemporaryFolder folder;
  write_small_qkv(folder / "in.npz");
  How how;
  how.output = "/dev/full";
  const Outcome outcome =
      run({"look", "--qkv", (folder / "in.npz").string(), "--html", (folder / "page.html").string()}, how);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("regard: standard output: No space left on device"));
  EXPECT_THAT(io::read_all(folder / "page.html"), HasSubstr("</html>"));
}

}  // namespace
}  // namespace regard::cli::testing
