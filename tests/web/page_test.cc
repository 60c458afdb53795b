#include "regard/web/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "regard/io/tensor.h"
#include "regard/web/payload.h"
#include "sample_report.h"

namespace regard::web {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Sample;
using testing::sample_report;

// What a browser takes as the content of a data block.
std::string block(const std::string& page, const std::string& id) {
  const std::string open = " id=\"" + id + "\">";
  const size_t at = page.find(open);
  if (at == std::string::npos) return {};
  const size_t begin = at + open.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

nlohmann::json data_of(const std::string& page) {
  return nlohmann::json::parse(block(page, "report"));
}

std::string decode(const std::string& text) {
  static const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    have += 6;
    if (have >= 8) out += static_cast<char>(bits >> (have -= 8) & 255);
  }
  return out;
}

template <class T>
std::vector<T> values(const std::string& page, const std::string& id) {
  const std::string bytes = decode(block(page, id));
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

std::vector<std::string> many_words(int64_t count) {
  std::vector<std::string> out;
  for (int64_t i = 0; i < count; ++i) out.push_back("word" + std::to_string(i));
  return out;
}

TEST(Base64, GivesTheKnownTextsOfTheStandard) {
  const auto of = [](std::string_view text) { return base64(std::as_bytes(std::span(text))); };
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("f"), "Zg==");
  EXPECT_EQ(of("fo"), "Zm8=");
  EXPECT_EQ(of("foo"), "Zm9v");
  EXPECT_EQ(of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(of(std::string_view("\xff\xfe\x00", 3)), "//4A");
}

TEST(Page, CarriesQueriesKeysAndLseBitForBit) {
  const lens::Report report = sample_report({.words = {"the", "cat", "sat"}});
  const std::string html = page(report);
  const auto text = data_of(html)["texts"][0];
  EXPECT_EQ(text["type"], "f32");
  ASSERT_EQ(text["carried"].size(), report.carried.size());
  for (const lens::CarriedHead& head : report.carried) {
    const std::string name = std::to_string(head.layer) + "." + std::to_string(head.head);
    EXPECT_EQ(values<float>(html, "q-0-" + name), head.q);
    EXPECT_EQ(values<float>(html, "l-0-" + name), head.lse);
    EXPECT_EQ(values<float>(html, "k-0-" + std::to_string(head.keys)),
              report.carried_keys[static_cast<size_t>(head.keys)].k);
  }
}

TEST(Page, BlockMapsAreTheReportsInSixteenBits) {
  const lens::Report report = sample_report({.words = many_words(150)});
  const std::string html = page(report);
  const auto text = data_of(html)["texts"][0];
  EXPECT_EQ(text["blocks"], report.blocks);
  EXPECT_EQ(text["blockTokens"], 3);
  const auto layer = values<uint16_t>(html, "b-0-1");
  const auto cells = static_cast<size_t>(report.blocks * report.blocks);
  ASSERT_EQ(layer.size(), cells * 2 * 4);
  for (size_t head = 0; head < 4; ++head) {
    const lens::HeadReport& expected = report.grid[4 + head];
    for (size_t cell = 0; cell < cells; ++cell) {
      const float mean = io::half_to_float(layer[2 * head * cells + cell]);
      const float max = io::half_to_float(layer[(2 * head + 1) * cells + cell]);
      EXPECT_NEAR(mean, expected.block_mean[cell], 5e-4 * expected.block_mean[cell] + 3e-8);
      EXPECT_NEAR(max, expected.block_max[cell], 5e-4 * expected.block_max[cell] + 3e-8);
    }
  }
}

TEST(Page, TellsLabelsEntropyAndFocusOfTheReport) {
  lens::Report report = sample_report({.words = {"the", "cat", "sat", "##ire"}, .focus = 3});
  report.focus.on_unit = 2;
  const auto text = data_of(page(report))["texts"][0];
  ASSERT_EQ(text["grid"].size(), 8);
  EXPECT_EQ(text["grid"][5]["label"], "previous");
  EXPECT_FLOAT_EQ(text["grid"][5]["entropy"], report.grid[5].entropy);
  EXPECT_EQ(text["focus"]["token"], 3);
  EXPECT_EQ(text["focus"]["on"], 2);
  EXPECT_FLOAT_EQ(text["focus"]["heads"][0]["weight"], report.focus.heads[0].top_weight);
  EXPECT_EQ(text["words"][3], nlohmann::json::parse(R"(["satire", 0, 3, 2])"));
  EXPECT_EQ(text["command"], report.command);
}

TEST(Page, MarksWhatPartsATokenFromTheOneBefore) {
  lens::Report report = sample_report({.words = {"one", "two", "##fold"}, .special = false});
  report.text = "one\n twofold";
  report.tokens[1].begin = 5;
  report.tokens[1].end = 8;
  report.tokens[2].begin = 8;
  report.tokens[2].end = 12;
  const auto tokens = data_of(page(report))["texts"][0]["tokens"];
  EXPECT_EQ(tokens[1][2], 2);  // a new line
  EXPECT_EQ(tokens[2][2], 0);  // nothing
}

TEST(Page, NewLineThatIsATokenEndsItsLine) {
  lens::Report report = sample_report({.words = {"one", "##N", "##two"}, .special = false});
  report.text = "one\ntwo";
  report.tokens[1].begin = 3;
  report.tokens[1].end = 4;
  report.tokens[2].begin = 4;
  report.tokens[2].end = 7;
  const auto tokens = data_of(page(report))["texts"][0]["tokens"];
  EXPECT_EQ(tokens[1][2], 0);
  EXPECT_EQ(tokens[2][2], 2);
}

TEST(Page, TextCannotEndAScriptOrOpenAComment) {
  const std::vector<std::string> hostile = {"</script>", "<!--", "<script>",
                                            "]]>",       "\"'&", "<img src=x onerror=alert(1)>"};
  lens::Report report = sample_report({.words = hostile});
  report.model = "</script><script>alert(1)</script>";
  report.warnings = {"</SCRIPT>"};
  const std::string harmless = page(sample_report({.words = {"a", "b", "c", "d", "e", "f"}}));
  const std::string html = page(report);
  const auto count = [](const std::string& text, const std::string& what) {
    size_t found = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count(html, "<script"), count(harmless, "<script"));
  EXPECT_EQ(count(html, "</script"), count(harmless, "</script"));
  EXPECT_EQ(count(html, "<!--"), count(harmless, "<!--"));
  EXPECT_THAT(html, Not(HasSubstr("<img src")));
  const auto data = data_of(html);
  EXPECT_EQ(data["texts"][0]["tokens"][1][0], "</script>");
  EXPECT_EQ(data["texts"][0]["tokens"][2][0], "<!--");
  EXPECT_EQ(data["texts"][0]["model"], report.model);
}

TEST(Page, BytesThatAreNoUtf8BecomeReplacementCharacters) {
  lens::Report report = sample_report({.words = {"a", "b"}});
  report.tokens[1].text = "\xff\xc3";
  EXPECT_EQ(data_of(page(report))["texts"][0]["tokens"][1][0], "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Page, AllowsOnlyItsOwnStyleAndScript) {
  const std::string html = page(sample_report({.words = {"a", "b"}}));
  EXPECT_THAT(html, HasSubstr("default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(html, Not(HasSubstr("unsafe-inline")));
  EXPECT_THAT(html, Not(HasSubstr("http://")));
  EXPECT_THAT(html, Not(HasSubstr("https://")));
  EXPECT_THAT(html, Not(HasSubstr("{{")));
}

TEST(Page, TwoTextsStandSideBySide) {
  const lens::Report a = sample_report({.words = {"too", "tired"}});
  const lens::Report b = sample_report({.words = {"far", "too", "wide"}});
  const std::string html = page(a, b);
  const auto data = data_of(html);
  ASSERT_EQ(data["texts"].size(), 2);
  EXPECT_EQ(data["texts"][1]["tokens"][3][0], "wide");
  EXPECT_EQ(values<float>(html, "q-1-1.2"), b.carried[6].q);
}

TEST(Page, ShortTextIsASmallFile) {
  // The README's page: 6 layers of 12 heads of size 32, 15 tokens, every head carried.
  const lens::Report report = sample_report({.words = many_words(13),
                                             .layers = 6,
                                             .heads = 12,
                                             .kv_heads = 12,
                                             .head_size = 32,
                                             .carried_heads = 72});
  EXPECT_LT(page(report).size(), 1'000'000);
}

// A long text: only what takes space is filled.
lens::Report long_report(int64_t tokens, int64_t layers, int64_t heads, int64_t carried, int64_t blocks) {
  lens::Report report;
  report.layers = layers;
  report.heads = heads;
  report.kv_heads = heads;
  report.blocks = blocks;
  report.block_tokens = (tokens + blocks - 1) / blocks;
  report.words = true;
  for (int64_t i = 0; i < tokens; ++i) {
    lens::Token token;
    token.text = "token" + std::to_string(i);
    report.tokens.push_back(token);
    report.word_units.push_back({token.text, i, 1, false, false});
  }
  report.units = report.word_units;
  report.focus.unit = 0;
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int64_t head = 0; head < heads; ++head) {
      lens::HeadReport facts;
      facts.layer = layer;
      facts.head = head;
      facts.block_mean.assign(static_cast<size_t>(blocks * blocks), 0.25F);
      facts.block_max.assign(static_cast<size_t>(blocks * blocks), 0.5F);
      report.grid.push_back(facts);
    }
  }
  for (int64_t c = 0; c < carried; ++c) {
    report.carried_keys.push_back({0, c, std::vector<float>(static_cast<size_t>(tokens * 64), 1.0F)});
    report.carried.push_back({.layer = 0,
                              .head = c,
                              .keys = c,
                              .head_size = 64,
                              .scale = 0.125F,
                              .q = std::vector<float>(static_cast<size_t>(tokens * 64), 0.5F),
                              .lse = std::vector<float>(static_cast<size_t>(tokens), 2.0F)});
  }
  return report;
}

TEST(Page, StaysWithin25MegabytesAndCarriesTheFirstHeads) {
  const std::string html = page(long_report(8000, 30, 9, 9, 64));
  EXPECT_LE(html.size(), kPageLimit);
  const auto text = data_of(html)["texts"][0];
  EXPECT_EQ(text["type"], "f32");
  EXPECT_GE(text["carried"].size(), 1);
  EXPECT_LT(text["carried"].size(), 9);
  EXPECT_EQ(text["carried"][0]["head"], 0);
  EXPECT_EQ(block(html, "q-0-0.8"), "");
}

TEST(Page, RoundsTo16BitsBeforeItCarriesNothing) {
  const std::string html = page(long_report(40000, 2, 4, 4, 64));
  EXPECT_LE(html.size(), kPageLimit);
  const auto text = data_of(html)["texts"][0];
  EXPECT_EQ(text["type"], "f16");
  EXPECT_GE(text["carried"].size(), 1);
  EXPECT_EQ(io::half_to_float(values<uint16_t>(html, "q-0-0.0")[0]), 0.5F);
}

TEST(Page, ManyHeadsGetCoarserBlocksOfTheSameMeanAndMaximum) {
  const std::string html = page(long_report(1000, 80, 64, 0, 63));
  EXPECT_LE(html.size(), kPageLimit);
  const auto text = data_of(html)["texts"][0];
  const int64_t blocks = text["blocks"];
  const int64_t side = text["blockTokens"];
  EXPECT_LT(blocks, 63);
  EXPECT_EQ(blocks, (1000 + side - 1) / side);
  const auto layer = values<uint16_t>(html, "b-0-79");
  ASSERT_EQ(static_cast<int64_t>(layer.size()), 64 * 2 * blocks * blocks);
  EXPECT_EQ(io::half_to_float(layer[0]), 0.25F);
  EXPECT_EQ(io::half_to_float(layer[static_cast<size_t>(blocks * blocks)]), 0.5F);
}

TEST(Page, VeryLongTextIsStillAPageOrASentence) {
  const std::string html = page(long_report(300000, 1, 1, 1, 64));
  EXPECT_LE(html.size(), kPageLimit);
  EXPECT_EQ(data_of(html)["texts"][0]["tokens"].size(), 300000);
  EXPECT_THROW(page(long_report(1500000, 1, 1, 0, 64)), std::invalid_argument);
}

TEST(Page, ReportWithoutTokensIsRefused) {
  EXPECT_THROW(page(lens::Report{}), std::invalid_argument);
}

TEST(BlockMaps, CoarserWeighsTheSmallLastBlockByItsSize) {
  // 5 tokens in blocks of 1: means of a 5 x 5 map; blocks of 2 then end with one token.
  BlockMaps maps{1, 5, {}, {}};
  for (int i = 0; i < 25; ++i) maps.mean.push_back(static_cast<float>(i));
  maps.max = maps.mean;
  const BlockMaps twice = coarser(maps, 5);
  EXPECT_EQ(twice.tokens, 2);
  ASSERT_EQ(twice.count, 3);
  EXPECT_FLOAT_EQ(twice.mean[0], (0 + 1 + 5 + 6) / 4.0F);
  EXPECT_FLOAT_EQ(twice.mean[2], (4 + 9) / 2.0F);
  EXPECT_FLOAT_EQ(twice.mean[8], 24.0F);
  EXPECT_FLOAT_EQ(twice.max[0], 6.0F);
  const BlockMaps four = coarser(twice, 5);
  ASSERT_EQ(four.count, 2);
  float sum = 0;
  for (int r = 0; r < 4; ++r) {
    for (int c = 0; c < 4; ++c) sum += static_cast<float>(5 * r + c);
  }
  EXPECT_FLOAT_EQ(four.mean[0], sum / 16);
}

TEST(Page, DenseMaskIsCarriedAsBits) {
  lens::Report report = sample_report({.words = {"a", "b", "c"}, .special = false});
  report.dense_mask = {1, 0, 1, 1, 1, 0, 0, 1, 1};
  const std::string html = page(report);
  EXPECT_EQ(data_of(html)["texts"][0]["masked"], true);
  const auto bits = values<uint8_t>(html, "m-0");
  ASSERT_EQ(bits.size(), 2);
  EXPECT_EQ(bits[0], 0b10011101);
  EXPECT_EQ(bits[1], 1);
}

}  // namespace
}  // namespace regard::web
