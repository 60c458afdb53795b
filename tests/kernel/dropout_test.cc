#include "regard/kernel/dropout.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "../attention/target_test.h"

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

class DropElements : public testing::EachTarget {
 protected:
  const Dropout dropout_{.threshold = 19661, .seed = 11, .offset = 5};
  Serial serial_;
};

TEST_P(DropElements, KeepsWhatItsPlainTwinKeepsForAnyLength) {
  for (const int64_t count : {0, 1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 1000, 16384, 16385, 50'001}) {
    std::vector<float> x(static_cast<size_t>(count) + 1), y(x.size(), -7.0F);
    std::vector<double> wide(x.size()), want(x.size(), -7.0);
    for (size_t i = 0; i < x.size(); ++i) wide[i] = x[i] = static_cast<float>(i % 1000) - 300.0F;
    drop_elements(dropout_, x.data(), count, y.data(), serial_);
    drop_elements(dropout_, wide.data(), count, want.data(), serial_);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], static_cast<float>(want[i])) << i << " of " << count;
    drop_elements(dropout_, x.data(), count, x.data(), serial_);  // in place
    x.back() = y.back();
    EXPECT_EQ(x, y);
  }
}

TEST_P(DropElements, DropsAsOftenAsItsThresholdSaysWithoutARhythm) {
  constexpr int64_t kCount = 1 << 20;
  const std::vector<float> ones(kCount, 1.0F);
  std::vector<float> y(kCount);
  drop_elements(dropout_, ones.data(), kCount, y.data(), serial_);
  const double p = dropout_.threshold / 65536.0;
  std::vector<int64_t> dropped(64);  // by the place in a word
  int64_t together = 0;              // neighbours of the same fate
  for (int64_t i = 0; i < kCount; ++i) {
    const float got = y[static_cast<size_t>(i)];
    ASSERT_TRUE(got == 0.0F || got == dropout_.scale());
    dropped[static_cast<size_t>(i % 64)] += got == 0.0F ? 1 : 0;
    if (i > 0) together += got == y[static_cast<size_t>(i - 1)] ? 1 : 0;
  }
  constexpr double kOfAPlace = kCount / 64.0;
  for (const int64_t count : dropped)
    EXPECT_NEAR(static_cast<double>(count) / kOfAPlace, p, 5 * std::sqrt(p * (1 - p) / kOfAPlace));
  EXPECT_NEAR(static_cast<double>(together) / kCount, p * p + (1 - p) * (1 - p), 5 * 0.5 / std::sqrt(kCount));
}

TEST_P(DropElements, HasTheSameBitsForAnyNumberOfThreads) {
  std::vector<float> x(70'001, 2.0F), y(x.size()), again(x.size());
  drop_elements(dropout_, x.data(), static_cast<int64_t>(x.size()), y.data(), serial_);
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    drop_elements(dropout_, x.data(), static_cast<int64_t>(x.size()), again.data(), pool);
    EXPECT_EQ(y, again) << threads;
  }
}

TEST_P(DropElements, WhatIsDroppedIsGoneEvenIfItIsNoNumber) {
  const std::vector<float> x(1000, NAN);
  std::vector<float> y(x.size());
  drop_elements(dropout_, x.data(), 1000, y.data(), serial_);
  int64_t zeros = 0;
  for (const float got : y) zeros += got == 0.0F ? 1 : 0;
  EXPECT_GT(zeros, 200);
  EXPECT_LT(zeros, 400);
}

INSTANTIATE_TEST_SUITE_P(Targets, DropElements, ::testing::ValuesIn(runnable_targets()));

}  // namespace
}  // namespace regard::kernel
