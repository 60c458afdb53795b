#include "regard/io/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "files.h"
#include "regard/io/error.h"
#include "regard/io/gzip.h"

namespace regard::io {
namespace {

using ::testing::HasSubstr;

const std::string kTwoByThree("\0\0\x08\x02\0\0\0\x02\0\0\0\x03\1\2\3\4\5\6", 18);

Idx parse(const std::string& bytes) {
  return parse_idx(bytes_of(bytes), "file");
}
std::string refusal(const std::string& bytes) {
  return message_of<Error>([&] { parse(bytes); });
}

TEST(Idx, ReadsSizesInBigEndianAndWritesThemBack) {
  const Idx idx = parse(kTwoByThree);
  EXPECT_THAT(idx.shape, ::testing::ElementsAre(2, 3));
  EXPECT_THAT(idx.values, ::testing::ElementsAre(1, 2, 3, 4, 5, 6));
  const std::vector<std::byte> bytes = encode_idx(idx);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), kTwoByThree);
}

TEST(Idx, FilesArePlainOrGzip) {
  const TemporaryFolder folder;
  const Idx idx{{2, 2, 1}, {9, 8, 7, 6}};
  write_idx(folder / "plain", idx);
  write_idx(folder / "packed.gz", idx);
  EXPECT_TRUE(is_gzip(bytes_of(read_all(folder / "packed.gz"))));
  EXPECT_FALSE(is_gzip(bytes_of(read_all(folder / "plain"))));
  EXPECT_EQ(read_idx(folder / "plain"), idx);
  EXPECT_EQ(read_idx(folder / "packed.gz"), idx);
  EXPECT_THROW(read_idx(folder / "absent"), Error);
}

TEST(Idx, IsUnpackedOnce) {
  const std::vector<std::byte> twice = gzip(gzip(bytes_of(kTwoByThree)));
  EXPECT_THAT(refusal(std::string(reinterpret_cast<const char*>(twice.data()), twice.size())),
              HasSubstr("not an IDX file"));
}

TEST(Idx, EmptySetsAreSets) {
  const Idx empty{{0, 28, 28}, {}};
  const std::vector<std::byte> bytes = encode_idx(empty);
  EXPECT_EQ(parse_idx(bytes, "file"), empty);
}

TEST(Idx, CutAnywhereOrTooLongItIsRefused) {
  for (size_t size = 0; size < kTwoByThree.size(); ++size)
    EXPECT_THAT(refusal(kTwoByThree.substr(0, size)), HasSubstr("file: ")) << size;
  EXPECT_THAT(refusal(kTwoByThree + '\7'), HasSubstr("ask for 6 bytes, but 7 follow"));
}

TEST(Idx, OtherFilesAndOtherTypesAreNamed) {
  EXPECT_THAT(refusal("PK\3\4 some other file"), HasSubstr("not an IDX file"));
  std::string floats = kTwoByThree;
  floats[2] = '\x0D';
  EXPECT_THAT(refusal(floats), HasSubstr("32-bit floats"));
  floats[2] = '\x55';
  EXPECT_THAT(refusal(floats), HasSubstr("unknown type"));
  std::string without = kTwoByThree;
  without[3] = 0;
  EXPECT_THAT(refusal(without), HasSubstr("no dimensions"));
}

TEST(Idx, SizesThatMultiplyBeyondAllBoundsAreRefused) {
  std::string huge("\0\0\x08\x04", 4);
  huge += std::string(16, '\xFF');
  EXPECT_THAT(refusal(huge), HasSubstr("too large"));
  const std::string claims("\0\0\x08\x01\xFF\xFF\xFF\xFF", 8);
  EXPECT_THAT(refusal(claims), HasSubstr("ask for 4294967295 bytes, but 0 follow"));
}

TEST(Idx, WhatDoesNotFitIsNotWritten) {
  EXPECT_THROW(encode_idx({{2, 3}, {1, 2}}), std::invalid_argument);
  EXPECT_THROW(encode_idx({{}, {1}}), std::invalid_argument);
  EXPECT_THROW(encode_idx({{-1}, {}}), std::invalid_argument);
  EXPECT_THROW(encode_idx({{int64_t{1} << 32, 0}, {}}), std::invalid_argument);
}

}  // namespace
}  // namespace regard::io
