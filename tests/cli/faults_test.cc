// A file that is being replaced, and a disk that fails at every step of it: the old file stays whole, nothing
// temporary is left, one sentence says what happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "small_qkv.h"
#include "tests/io/files.h"

namespace regard::cli::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Faults : public ::testing::Test {
 protected:
  void SetUp() override {
    write_small_qkv(folder_ / "in.npz");
    io::write_all(folder_ / "out/page.html", "the old page");
  }

  Outcome look(const std::string& fault) {
    How how;
    // The sanitizers want to be the first library, which they need not be here.
    how.environment = {
        {"LD_PRELOAD", REGARD_FAULTS}, {"WRITER_FAULT", fault}, {"ASAN_OPTIONS", "verify_asan_link_order=0"}};
    return run({"look", "--qkv", (folder_ / "in.npz").string(), "--html", page().string()}, how);
  }
  std::filesystem::path page() const { return folder_ / "out/page.html"; }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_ / "out"), {}));
  }

  io::TemporaryFolder folder_;
};

TEST_F(Faults, EveryStepThatFailsLeavesTheOldFile) {
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"write_first", "cannot be written: No space left on device"},
      {"write", "cannot be written: No space left on device"},
      {"sync", "cannot be synced to the disk: Input/output error"},
      {"close", "cannot be closed: Disk quota exceeded"},
      {"rename", "cannot be renamed into place: Permission denied"},
  };
  for (const auto& [fault, sentence] : faults) {
    SCOPED_TRACE(fault);
    const Outcome outcome = look(fault);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(complaints(outcome), ElementsAre("regard: " + page().string() + ": " + sentence));
    EXPECT_THAT(outcome.out, HasSubstr("What each head does"));  // what was printed before stays printed
    EXPECT_EQ(io::read_all(page()), "the old page");
    EXPECT_EQ(files(), 1u) << "something was left beside it";
  }
}

TEST_F(Faults, ShortAndInterruptedCallsAreGoneOnWith) {
  ASSERT_EQ(look("none").code, 0);
  const std::string whole = io::read_all(page());
  ASSERT_THAT(whole, HasSubstr("</html>"));
  for (const char* fault : {"write_short", "write_interrupted", "sync_interrupted"}) {
    SCOPED_TRACE(fault);
    io::write_all(page(), "the old page");
    const Outcome outcome = look(fault);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(io::read_all(page()), whole);
    EXPECT_EQ(files(), 1u);
  }
}

TEST_F(Faults, AFolderThatCannotBeSyncedIsSaidAndTheNewFileIsWhole) {
  const Outcome outcome = look("sync_folder");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("its folder cannot be synced to the disk: Input/output error"));
  EXPECT_THAT(io::read_all(page()), HasSubstr("</html>"));
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace regard::cli::testing
