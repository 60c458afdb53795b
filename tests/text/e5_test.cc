// The multilingual E5 tokenizer against the engine it is shipped with, and against two other programs.
#include <gtest/gtest.h>

#include <algorithm>

#include "golden.h"
#include "regard/io/e5_file.h"
#include "regard/text/load.h"

namespace regard::text {
namespace {

class E5 : public testing::Test {
 protected:
  static std::filesystem::path file() { return model_path("e5") / "e5-small-q4.bin"; }
  void SetUp() override {
    REGARD_NEEDS_MODEL("e5", file());
    static const std::shared_ptr<Tokenizer> shared = load_tokenizer(io::E5File::open(file()));
    tokenizer = shared;
  }
  std::shared_ptr<Tokenizer> tokenizer;
};

bool has_reason(const nlohmann::json& line, const char* field, const char* reason) {
  if (!line.contains(field)) return false;
  const auto reasons = line[field].get<std::vector<std::string>>();
  return std::find(reasons.begin(), reasons.end(), reason) != reasons.end();
}

TEST_F(E5, IdsAndPiecesEqualTheReference) {
  size_t cases = 0;
  for (const auto& line : golden_lines("e5-tokens/tokens.jsonl")) {
    const std::string text = line["text"];
    const Encoding encoding = tokenizer->encode(text, {.parse_special = true});
    EXPECT_EQ(encoding.ids, ids_of(line["ids"])) << "case " << line["i"] << ": " << text;
    if (line.contains("pieces")) {
      EXPECT_EQ(encoding.pieces, line["pieces"].get<std::vector<std::string>>()) << "case " << line["i"];
    }
    ++cases;
  }
  EXPECT_EQ(cases, 352u);
}

// By default a text cannot spell a control token: it is read as SentencePiece reads it.
TEST_F(E5, ControlTokensWrittenInATextAreOrdinaryCharacters) {
  size_t spelled = 0;
  for (const auto& line : golden_lines("e5-tokens/tokens.jsonl")) {
    const std::string text = line["text"];
    const Encoding encoding = tokenizer->encode(text);
    if (!has_reason(line, "why_sentencepiece", "special_text")) {
      EXPECT_EQ(encoding.ids, ids_of(line["ids"])) << "case " << line["i"] << ": " << text;
      continue;
    }
    if (line["why_sentencepiece"].size() == 1) {
      EXPECT_EQ(encoding.ids, ids_of(line["ids_sentencepiece"])) << "case " << line["i"] << ": " << text;
    }
    for (size_t i = 1; i + 1 < encoding.size(); ++i)
      EXPECT_FALSE(tokenizer->is_special(encoding.ids[i])) << text;
    ++spelled;
  }
  EXPECT_GE(spelled, 9u);
}

TEST_F(E5, NoIdOfATextIsUnknownWithoutBeingCounted) {
  for (const auto& line : golden_lines("e5-tokens/tokens.jsonl")) {
    const auto ids = ids_of(line["ids"]);
    EXPECT_EQ(tokenizer->encode(line["text"].get<std::string>(), {.parse_special = true}).unknown,
              size_t(std::count(ids.begin(), ids.end(), 3)));
  }
  EXPECT_EQ(tokenizer->encode("我吃了一个苹果").unknown, 0u);
  EXPECT_EQ(tokenizer->encode("我爱你").unknown, 0u);
}

TEST_F(E5, DecodingGivesTheNormalisedTextBack) {
  for (const auto& line : golden_lines("e5-tokens/tokens.jsonl")) {
    const Encoding encoding = tokenizer->encode(line["text"].get<std::string>());
    if (encoding.unknown > 0) continue;
    std::string normalized = line["normalized"];
    if (normalized.starts_with(' ')) normalized.erase(0, 1);
    EXPECT_EQ(tokenizer->decode(encoding.ids), normalized) << "case " << line["i"];
  }
}

TEST_F(E5, OffsetsStandForTheBytesOfThePieces) {
  const std::string text = "我吃了一个苹果 now";
  const Encoding encoding = tokenizer->encode(text);
  ASSERT_EQ(encoding.pieces,
            (std::vector<std::string>{"<s>", "▁我", "吃", "了一个", "苹果", "▁now", "</s>"}));
  EXPECT_EQ(encoding.offsets,
            (std::vector<Span>{{0, 0}, {0, 3}, {3, 6}, {6, 15}, {15, 21}, {22, 25}, {0, 0}}));
  EXPECT_EQ(encoding.continues, (std::vector<uint8_t>{0, 0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(encoding.special, (std::vector<uint8_t>{1, 0, 0, 0, 0, 0, 1}));
}

TEST_F(E5, OffsetsOfTextThatChangesInNormalisationStayInsideIt) {
  for (const auto& line : golden_lines("e5-tokens/tokens.jsonl")) {
    const std::string text = line["text"];
    const Encoding encoding = tokenizer->encode(text);
    size_t begin = 0;
    for (const Span& span : encoding.offsets) {
      EXPECT_LE(span.begin, span.end);
      EXPECT_LE(span.end, text.size());
      if (span.empty()) continue;
      EXPECT_GE(span.begin, begin) << "case " << line["i"];
      begin = span.begin;
    }
  }
}

TEST_F(E5, PiecesChosenByTheCallerAreTaken) {
  const Encoding encoding = tokenizer->encode_pieces("我|吃|了|一个|苹果");
  EXPECT_EQ(encoding.pieces, (std::vector<std::string>{"<s>", "▁我", "吃", "了", "一个", "苹果", "</s>"}));
  EXPECT_EQ(encoding.ids[1], tokenizer->id_of("▁我"));
  EXPECT_EQ(Tokenizer::forced_text("我|吃|了|一个|苹果"), "我吃了一个苹果");
  EXPECT_EQ(encoding.offsets[4], (Span{9, 15}));
  EXPECT_EQ(tokenizer->encode_pieces("我|爱|你").pieces,
            (std::vector<std::string>{"<s>", "▁我", "爱", "你", "</s>"}));
}

TEST_F(E5, AChosenPieceThatIsNoTokenIsNamed) {
  try {
    tokenizer->encode_pieces("我|吃了一个苹");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "piece 2, \"吃了一个苹\", is not a token of the vocabulary");
  }
  EXPECT_THROW(tokenizer->encode_pieces("我||你"), std::invalid_argument);
  EXPECT_THROW(tokenizer->encode_pieces(""), std::invalid_argument);
  EXPECT_THROW(tokenizer->encode_pieces("我|</s>"), std::invalid_argument);
}

TEST_F(E5, PairsStandAsXlmRWantsThem) {
  const Encoding encoding = tokenizer->encode_pair("我", "你");
  EXPECT_EQ(encoding.pieces, (std::vector<std::string>{"<s>", "▁我", "</s>", "</s>", "▁你", "</s>"}));
  EXPECT_EQ(encoding.text_index[1], 0);
  EXPECT_EQ(encoding.text_index[4], 1);
}

TEST_F(E5, AMillionEqualLettersTakeLinearTime) {
  const Encoding encoding = tokenizer->encode(std::string(1'000'000, 'a'));
  EXPECT_EQ(tokenizer->decode(encoding.ids).size(), 1'000'000u);
}

}  // namespace
}  // namespace regard::text
