#include "regard/io/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "files.h"
#include "regard/io/error.h"

namespace regard::io {
namespace {

using ::testing::HasSubstr;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string packed(const std::string& text) {
  return text_of(gzip(bytes_of(text)));
}

std::string noise(size_t size) {
  std::mt19937 generator(1);
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(generator());
  return out;
}

TEST(Gzip, WhatWasPackedComesBack) {
  for (const std::string& text :
       {std::string(), std::string("a"), std::string(300'000, 'x'), noise(200'000)}) {
    EXPECT_TRUE(is_gzip(bytes_of(packed(text))));
    EXPECT_EQ(text_of(gunzip(bytes_of(packed(text)), "file")), text);
  }
}

// What `printf hello | gzip -9n` gives, with the system unnamed.
TEST(Gzip, ReadsAndWritesWhatGzipDoes) {
  const std::string hello(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xcb\x48\xcd\xc9\xc9\x07\x00\x86\xa6\x10\x36\x05\x00\x00\x00",
      25);
  EXPECT_EQ(text_of(gunzip(bytes_of(hello), "file")), "hello");
  EXPECT_EQ(packed("hello"), hello);
}

TEST(Gzip, SeveralMembersAreOneFile) {
  EXPECT_EQ(text_of(gunzip(bytes_of(packed("one ") + packed("two")), "file")), "one two");
}

TEST(Gzip, CutDamagedOrFollowedByOtherBytesIsRefused) {
  const std::string whole = packed("the quick brown fox jumps over the lazy dog");
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    EXPECT_THROW(gunzip(bytes_of(cut), "file"), Error) << size;
  }
  std::string wrong_sum = whole;
  wrong_sum[wrong_sum.size() - 6] = static_cast<char>(wrong_sum[wrong_sum.size() - 6] ^ 1);
  EXPECT_THAT(message_of<Error>([&] { gunzip(bytes_of(wrong_sum), "file"); }),
              HasSubstr("file: damaged gzip data"));
  const std::string followed = whole + "more";
  EXPECT_THROW(gunzip(bytes_of(followed), "file"), Error);
  EXPECT_THAT(message_of<Error>([] { gunzip(bytes_of("plain text"), "file"); }),
              HasSubstr("not a gzip file"));
}

TEST(Gzip, ALimitHoldsAgainstFilesThatUnpackWithoutEnd) {
  const std::string bomb = packed(std::string(5'000'000, '\0'));
  EXPECT_LT(bomb.size(), 10'000u);
  EXPECT_THAT(message_of<Error>([&] { gunzip(bytes_of(bomb), "file", 4'999'999); }),
              HasSubstr("4999999 bytes, the limit"));
  EXPECT_EQ(gunzip(bytes_of(bomb), "file", 5'000'000).size(), 5'000'000u);
}

}  // namespace
}  // namespace regard::io
