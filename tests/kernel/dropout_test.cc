#include "regard/kernel/dropout.h"

#include <gtest/gtest.h>

#include <bit>

namespace regard::kernel {
namespace {

// Known answers of Philox4x32-10 (Random123's kat_vectors): counter and key 0 give 6627e8d5 e169c58d bc57ac4c
// 9b00dbd8.
TEST(Dropout, DrawsAreThoseOfPhilox) {
  const uint32_t words[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (const uint32_t threshold : {1U, 0x27U, 0x6628U, 0x9b00U, 0xbc58U, 0xffffU}) {
    for (int64_t column = 0; column < 8; ++column) {
      const uint32_t draw = words[column / 2] >> (column % 2 * 16) & 0xFFFF;
      EXPECT_EQ(kept({.threshold = threshold, .seed = 0, .offset = 0}, 0, 0, 0, column, 1),
                draw >= threshold);
    }
  }
}

TEST(Dropout, DropsAsOftenAsItsThresholdSays) {
  const Dropout dropout{.threshold = 6554, .seed = 7, .offset = 3};
  int64_t count = 0;
  for (int64_t row = 0; row < 1000; ++row)
    for (int64_t key = 0; key < 1024; key += 64) count += std::popcount(kept(dropout, 1, 2, row, key, 64));
  const double share = static_cast<double>(count) / (1000.0 * 1024.0);
  EXPECT_NEAR(share, 1 - 6554.0 / 65536, 0.0012);  // four standard deviations
}

TEST(Dropout, IsAFunctionOfThePositionHoweverItIsAsked) {
  const Dropout dropout{.threshold = 30000, .seed = 1, .offset = 1};
  const uint64_t whole = kept(dropout, 0, 1, 5, 40, 64);
  for (int64_t c = 0; c < 64; ++c) EXPECT_EQ(kept(dropout, 0, 1, 5, 40 + c, 1), whole >> c & 1) << c;
  EXPECT_NE(kept({.threshold = 30000, .seed = 1, .offset = 2}, 0, 1, 5, 40, 64), whole);
  EXPECT_NE(kept(dropout, 1, 1, 5, 40, 64), whole);
}

}  // namespace
}  // namespace regard::kernel
