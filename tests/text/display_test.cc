#include "regard/text/display.h"

#include <gtest/gtest.h>

namespace regard::text {
namespace {

TEST(Display, WideCharactersTakeTwoCellsAndMarksNone) {
  EXPECT_EQ(display_width(""), 0u);
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("我吃了"), 6u);
  EXPECT_EQ(display_width("e\u0301"), 1u);
  EXPECT_EQ(display_width("ｶﾞ"), 2u);  // half-width
  EXPECT_EQ(display_width("Ａ"), 2u);  // full-width
  EXPECT_EQ(display_width("한국"), 4u);
  EXPECT_EQ(display_width("\u1112\u1161\u11AB"), 2u);  // the same syllable in parts
  EXPECT_EQ(display_width("a\nb\x1b"), 2u);
  EXPECT_EQ(display_width("▁Ġ·…"), 4u);
}

TEST(Display, EmojiSequencesAreOnePicture) {
  EXPECT_EQ(display_width("😀"), 2u);
  EXPECT_EQ(display_width("👍🏽"), 2u);            // skin tone
  EXPECT_EQ(display_width("👩‍👩‍👧"), 2u);  // joined by U+200D
  EXPECT_EQ(display_width("🇫🇷🇨🇳"), 4u);                // two flags
  EXPECT_EQ(display_width("❤️"), 2u);              // U+2764 U+FE0F
  EXPECT_EQ(display_width("❤"), 1u);
}

TEST(Display, BytesThatAreNotUtf8CountOneEach) {
  EXPECT_EQ(display_width("a\xE6\x88"), 3u);
  EXPECT_EQ(display_width("\xFF\xC0"), 2u);
}

TEST(Display, CutsAtTheWidthWithAnEllipsis) {
  EXPECT_EQ(cut_to_width("animal", 6), "animal");
  EXPECT_EQ(cut_to_width("animal", 5), "anim…");
  EXPECT_EQ(cut_to_width("animal", 5, true), "anim~");
  EXPECT_EQ(cut_to_width("animal", 1), "…");
  EXPECT_EQ(cut_to_width("animal", 0), "");
  EXPECT_EQ(cut_to_width("", 0), "");
  EXPECT_EQ(cut_to_width("我吃了", 5), "我吃…");
  EXPECT_EQ(cut_to_width("我吃了", 4), "我…");  // a wide character never hangs over
  EXPECT_EQ(cut_to_width("我吃了", 6), "我吃了");
  EXPECT_EQ(cut_to_width("ae\u0301bc", 3), "ae\u0301…");
}

TEST(Display, FitsToExactlyTheWidth) {
  EXPECT_EQ(fit_to_width("ab", 4), "ab  ");
  EXPECT_EQ(fit_to_width("ab", 4, Align::right), "  ab");
  EXPECT_EQ(fit_to_width("ab", 5, Align::center), " ab  ");
  EXPECT_EQ(fit_to_width("我吃了", 4), "我… ");
  EXPECT_EQ(fit_to_width("苹果", 6, Align::right), "  苹果");
  for (size_t width = 0; width < 20; ++width)
    for (const char* text :
         {"", "animal", "我吃了一个苹果", "a我b吃", "👩‍👩‍👧x", "e\u0301\u0302fg", "\xE6\x88zz"})
      EXPECT_EQ(display_width(fit_to_width(text, width)), width) << text;
}

TEST(Display, AsciiKeepsTheWidthAndTheLetters) {
  EXPECT_EQ(to_ascii("naïve Ünï"), "naive Uni");
  EXPECT_EQ(to_ascii("我a"), "??a");
  EXPECT_EQ(to_ascii("e\u0301"), "e");
  EXPECT_EQ(to_ascii("a\tb"), "a?b");
  for (const char* text : {"naïve", "我吃了", "😀", "…", "한국"})
    EXPECT_EQ(to_ascii(text).size(), display_width(text)) << text;
}

}  // namespace
}  // namespace regard::text
