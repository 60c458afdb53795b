#include "regard/io/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "regard/io/error.h"
#include "tests/io/files.h"

namespace regard::io {
namespace {

using testing::HasSubstr;

TEST(MappedFile, HoldsTheBytesAlsoAfterTheyWereReleased) {
  const TemporaryFolder folder;
  std::string text(100'000, 'a');
  text[99'999] = 'z';
  write_all(folder / "x", text);
  MappedFile first = MappedFile::open(folder / "x");
  const MappedFile file = std::move(first);
  ASSERT_EQ(file.bytes().size(), text.size());
  file.will_need(file.bytes());
  EXPECT_EQ(file.bytes()[99'999], std::byte{'z'});
  file.release(file.bytes());
  EXPECT_EQ(file.bytes()[0], std::byte{'a'});
  EXPECT_EQ(file.bytes()[99'999], std::byte{'z'});
  EXPECT_TRUE(first.bytes().empty());
}

TEST(MappedFile, AnEmptyFileIsFine) {
  const TemporaryFolder folder;
  write_all(folder / "x", "");
  const MappedFile file = MappedFile::open(folder / "x");
  EXPECT_TRUE(file.bytes().empty());
  file.will_need(file.bytes());
  file.release(file.bytes());
}

TEST(MappedFile, RefusesWhatIsNoFileInWords) {
  const TemporaryFolder folder;
  const auto attempt = [](const std::filesystem::path& path) {
    return message_of<Error>([&] { MappedFile::open(path); });
  };
  EXPECT_EQ(attempt(folder / "x"), (folder / "x").string() + ": cannot be opened: No such file or directory");
  EXPECT_EQ(attempt(folder.path()), folder.path().string() + ": is a folder, a file was expected");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(attempt(folder / "pipe"), HasSubstr("is not a regular file"));
  EXPECT_THAT(attempt("/dev/null"), HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace regard::io
