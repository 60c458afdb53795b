#include "regard/io/canvas.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace regard::io {
namespace {

constexpr Color kWhite = {255, 255, 255};
constexpr Color kBlack = {0, 0, 0};

int64_t dark(const Canvas& canvas) {
  int64_t count = 0;
  for (size_t i = 0; i < canvas.rgb().size(); i += 3) count += canvas.rgb()[i] == 0 ? 1 : 0;
  return count;
}

TEST(Canvas, BeginsInItsBackgroundAndRefusesSizesThatMeanNothing) {
  const Canvas canvas(3, 2, {1, 2, 3});
  ASSERT_EQ(canvas.rgb().size(), 18u);
  for (size_t i = 0; i < 18; ++i) EXPECT_EQ(canvas.rgb()[i], i % 3 + 1);
  EXPECT_THROW(Canvas(0, 5, kWhite), std::invalid_argument);
  EXPECT_THROW(Canvas(5, 65536, kWhite), std::invalid_argument);
}

TEST(Canvas, WhatLiesOutsideIsLeftOut) {
  Canvas canvas(10, 10);
  canvas.box(-5, -5, 7, 7, kBlack);  // 2 x 2 of it inside
  EXPECT_EQ(dark(canvas), 4);
  canvas.box(20, 3, 5, 5, kBlack);
  canvas.point(-1, 3, kBlack);
  canvas.point(3, 10, kBlack);
  canvas.line(1e300, 0, 1e300, 9, kBlack);
  canvas.line(NAN, 0, 3, 3, kBlack);
  canvas.text(-100, -100, "far away", kBlack);
  EXPECT_EQ(dark(canvas), 4);
}

TEST(Canvas, LinesReachBothEnds) {
  Canvas canvas(20, 20);
  canvas.line(2, 3, 17, 11, kBlack);
  EXPECT_EQ(canvas.rgb()[3 * (3 * 20 + 2)], 0);
  EXPECT_EQ(canvas.rgb()[3 * (11 * 20 + 17)], 0);
  EXPECT_EQ(dark(canvas), 16);
}

TEST(Canvas, LettersDifferAndCodePointsOutsideAsciiAreQuestionMarks) {
  const auto drawn = [](std::string_view text, bool upwards) {
    Canvas canvas(40, 40);
    canvas.text(4, upwards ? 36 : 4, text, kBlack, 1, upwards);
    return std::vector<uint8_t>(canvas.rgb().begin(), canvas.rgb().end());
  };
  for (char a = ' '; a < '~'; ++a)
    EXPECT_NE(drawn({&a, 1}, false), drawn(std::string(1, static_cast<char>(a + 1)), false)) << a;
  EXPECT_EQ(drawn("\xE4\xB8\x80", false), drawn("?", false));
  EXPECT_NE(drawn("ab", true), drawn("ab", false));
  EXPECT_EQ(Canvas::text_width("abc", 2), 36);
  EXPECT_EQ(Canvas::text_width("\xE4\xB8\x80", 1), 6);
}

TEST(Canvas, TextUpwardsIsTextTurned) {
  Canvas flat(20, 20), turned(20, 20);
  flat.text(2, 3, "R7", kBlack, 1);
  turned.text(3, 19 - 2, "R7", kBlack, 1, true);
  for (int64_t y = 0; y < 20; ++y) {
    for (int64_t x = 0; x < 20; ++x) {
      const auto at = [](const Canvas& canvas, int64_t x, int64_t y) {
        return canvas.rgb()[static_cast<size_t>(3 * (y * 20 + x))];
      };
      EXPECT_EQ(at(flat, x, y), at(turned, y, 18 - x < 0 ? 19 : 18 - x)) << x << " " << y;
    }
  }
}

}  // namespace
}  // namespace regard::io
