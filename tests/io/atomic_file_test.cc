#include "regard/io/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "regard/io/error.h"
#include "regard/io/npz.h"
#include "regard/io/png.h"
#include "regard/io/safetensors.h"
#include "tests/io/files.h"

namespace regard::io {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Runs `work` in a child process and returns its exit code: limits and signals stay out of the test program.
int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(AtomicFile, IsThereOnlyAfterCommit) {
  const TemporaryFolder folder;
  write_all(folder / "x", "old");
  {
    AtomicFile file(folder / "x");
    file.write("new ");
    file.write("text");
    EXPECT_EQ(read_all(folder / "x"), "old");
    file.commit();
    EXPECT_EQ(read_all(folder / "x"), "new text");
    EXPECT_THROW(file.write("more"), Error);
    EXPECT_THROW(file.commit(), Error);
  }
  {
    AtomicFile file(folder / "x");
    file.write("never committed");
  }
  EXPECT_EQ(read_all(folder / "x"), "new text");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(AtomicFile, WritesTextAndEmptyFilesAndRelativePaths) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "text", "a\nb\n");
  write_file_atomically(folder / "empty", "");
  EXPECT_EQ(read_all(folder / "text"), "a\nb\n");
  EXPECT_EQ(fs::file_size(folder / "empty"), 0u);
  EXPECT_EQ(in_child([&] {
              if (::chdir(folder.path().c_str()) != 0) return 2;
              write_file_atomically("here", "x");
              return 0;
            }),
            0);
  EXPECT_EQ(read_all(folder / "here"), "x");
}

TEST(AtomicFile, ModeFollowsTheUmask) {
  const TemporaryFolder folder;
  const mode_t old = ::umask(027);
  write_file_atomically(folder / "x", "x");
  ::umask(old);
  struct stat status;
  ASSERT_EQ(::stat((folder / "x").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(AtomicFile, FollowsALinkAndKeepsIt) {
  const TemporaryFolder folder;
  write_all(folder / "real/target", "old");
  fs::create_symlink("real/target", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_all(folder / "real/target"), "new");
}

TEST(AtomicFile, FailuresNameThePathAndTheReason) {
  const TemporaryFolder folder;
  const auto attempt = [](const fs::path& path) {
    return message_of<Error>([&] { write_file_atomically(path, "x"); });
  };
  EXPECT_EQ(attempt(folder.path()), folder.path().string() + ": cannot be written: it is a folder");
  EXPECT_EQ(attempt(folder / "missing/x"),
            (folder / "missing/x").string() +
                ": cannot be written: no temporary file in its folder: No such file or directory");
  write_all(folder / "file", "x");
  EXPECT_THAT(attempt(folder / "file/x"), HasSubstr("Not a directory"));
  EXPECT_THAT(attempt(""), HasSubstr("is not the name of a file"));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(AtomicFile, AReadOnlyFolderIsAnError) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                                     fs::perms::others_exec);
  const int code = in_child([&] {
    // Root may write anywhere; anyone else will do.
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 2;
    const std::string message = message_of<Error>([&] { write_file_atomically(folder / "x", "x"); });
    return message.ends_with("Permission denied") ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
  fs::permissions(folder.path(), fs::perms::owner_all);
}

TEST(AtomicFile, AFullDeviceIsAnErrorAndStaysADevice) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  EXPECT_EQ(message_of<Error>([] { write_file_atomically("/dev/full", "x"); }),
            "/dev/full: cannot be written: No space left on device");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  write_file_atomically("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

// A limit on the file size makes every write beyond it fail as a full disk would.
TEST(AtomicFile, EveryWriterLeavesNoPartOfAFileWhenTheDiskIsFull) {
  const std::vector<float> numbers(100'000, 1.0f);
  std::vector<uint8_t> noise(300 * 300 * 3);
  uint32_t state = 1;
  for (uint8_t& x : noise) x = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  const Tensor array = view("a", {100'000}, numbers);
  const std::vector<std::function<void(const fs::path&)>> writers = {
      [&](const fs::path& path) { write_file_atomically(path, std::string(100'000, 'x')); },
      [&](const fs::path& path) { write_safetensors(path, std::vector{array}); },
      [&](const fs::path& path) { write_npz(path, std::vector{array}, Compression::none); },
      [&](const fs::path& path) { write_npy(path, array); },
      [&](const fs::path& path) { write_png(path, 300, 300, noise); },
  };
  for (const auto& write : writers) {
    const TemporaryFolder folder;
    write_all(folder / "x", "old");
    const int code = in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{50'000, 50'000};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
      const std::string message = message_of<Error>([&] { write(folder / "x"); });
      return message == (folder / "x").string() + ": cannot be written: File too large" ? 0 : 1;
    });
    EXPECT_EQ(code, 0);
    EXPECT_EQ(read_all(folder / "x"), "old");
    EXPECT_EQ(folder.entries(), 1u);
  }
}

TEST(AtomicFile, OrphansOfTheDeadAreRemovedAndTheLivingKept) {
  const TemporaryFolder folder;
  in_child([&] {
    auto* file = new AtomicFile(folder / "x");
    file->write("cut off");
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  AtomicFile living(folder / "y");
  living.write("in the making");
  write_all(folder / ".other.tmp", "not ours");
  EXPECT_EQ(folder.entries(), 3u);
  EXPECT_EQ(remove_orphans(folder.path()), 1u);
  EXPECT_EQ(folder.entries(), 2u);
  living.commit();
  EXPECT_EQ(read_all(folder / "y"), "in the making");
  EXPECT_THROW(remove_orphans(folder / "nowhere"), Error);
}

}  // namespace
}  // namespace regard::io
