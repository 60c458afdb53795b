#include "regard/io/unzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zip.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>

#include "regard/io/error.h"

namespace regard::io {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class Unzip : public ::testing::Test {
 protected:
  Unzip() {
    std::string name = fs::temp_directory_path() / "regard_unzip_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
  }
  ~Unzip() override { fs::remove_all(folder_); }

  fs::path make_zip(const std::map<std::string, std::string>& entries) {
    const fs::path path = folder_ / "archive.zip";
    zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    for (const auto& [name, text] : entries) {
      const zip_int64_t index =
          zip_file_add(archive, name.c_str(), zip_source_buffer(archive, text.data(), text.size(), 0), 0);
      zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0);
    }
    if (zip_close(archive) != 0) throw std::runtime_error("the zip could not be written");
    return path;
  }

  std::string read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  size_t entries_of(const fs::path& folder) {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
  }

  fs::path folder_;
};

TEST_F(Unzip, TakesWhatBeginsWithThePrefixLessItsFolder) {
  const fs::path zip =
      make_zip({{"p/model/a.txt", "a"}, {"p/model/1_Pooling/b.txt", "b"}, {"p/other.txt", "o"}});
  unzip(zip, "p/model/", folder_ / "out");
  EXPECT_EQ(read(folder_ / "out/a.txt"), "a");
  EXPECT_EQ(read(folder_ / "out/1_Pooling/b.txt"), "b");
  EXPECT_FALSE(fs::exists(folder_ / "out/other.txt"));
  unzip(zip, "p/other.txt", folder_ / "one");
  EXPECT_EQ(read(folder_ / "one/other.txt"), "o");
}

TEST_F(Unzip, ReplacesAnOlderFolderWhole) {
  fs::create_directories(folder_ / "out");
  std::ofstream(folder_ / "out/stale") << "x";
  unzip(make_zip({{"p/a", "a"}}), "p/", folder_ / "out");
  EXPECT_EQ(read(folder_ / "out/a"), "a");
  EXPECT_FALSE(fs::exists(folder_ / "out/stale"));
}

TEST_F(Unzip, RefusesEntriesThatLeaveTheFolder) {
  EXPECT_THAT(
      [&] {
        unzip(make_zip({{"p/a", "a"}, {"p/../../evil", "e"}}), "p/", folder_ / "out");
      },
      ThrowsMessage<Error>(HasSubstr("leaves its folder")));
  EXPECT_THAT(
      [&] {
        unzip(make_zip({{"p//evil", "e"}}), "p/", folder_ / "out");
      },
      ThrowsMessage<Error>(HasSubstr("leaves its folder")));
  EXPECT_EQ(entries_of(folder_), 1U) << "something besides the zip was left";
}

TEST_F(Unzip, DamagedBytesLeaveNoFolder) {
  const fs::path zip = make_zip({{"p/a", "some text"}});
  std::string bytes = read(zip);
  bytes[bytes.find("some text")] = 'S';
  std::ofstream(zip, std::ios::binary) << bytes;
  EXPECT_THAT([&] { unzip(zip, "p/", folder_ / "out"); }, ThrowsMessage<Error>(HasSubstr("is damaged")));
  EXPECT_EQ(entries_of(folder_), 1U);
}

TEST_F(Unzip, NamesWhatIsMissing) {
  EXPECT_THAT(
      [&] {
        unzip(make_zip({{"p/a", "a"}}), "q/", folder_ / "out");
      },
      ThrowsMessage<Error>(HasSubstr("\"q/\"")));
  EXPECT_THROW(unzip(folder_ / "absent.zip", "p/", folder_ / "out"), Error);
  std::ofstream(folder_ / "text.zip") << "no archive";
  EXPECT_THAT([&] { unzip(folder_ / "text.zip", "p/", folder_ / "out"); },
              ThrowsMessage<Error>(HasSubstr("cannot be read as a zip archive")));
}

}  // namespace
}  // namespace regard::io
