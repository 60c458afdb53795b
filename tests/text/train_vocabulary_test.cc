// Vocabularies learned here: SentencePiece's own reading of them, a byte-level trainer by hand, round trips.
#include "regard/text/train_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include "golden.h"
#include "regard/text/load.h"
#include "regard/text/train_bpe.h"
#include "regard/text/train_sentencepiece.h"

namespace regard::text {
namespace {

using ::testing::HasSubstr;

// English, French and Chinese sentences; every other one is held out.
struct Sentences {
  std::vector<std::string> learned, held_out;
  Sentences() {
    const auto json = nlohmann::json::parse(golden_text("train/sacrebleu.json"));
    size_t count = 0;
    const auto add = [&](const std::string& text) { (count++ % 2 ? held_out : learned).push_back(text); };
    for (const auto& score : json["scores"]) {
      for (const auto& text : score["translations"]) add(text);
      for (const auto& several : score["references"])
        for (const auto& text : several) add(text);
    }
  }
};

const Sentences& sentences() {
  static const Sentences all;
  return all;
}

std::unique_ptr<Tokenizer> learned(const VocabularyOptions& options) {
  return tokenizer_from_json(train_vocabulary(sentences().learned, options), "tokenizer.json");
}

class Fallback : public testing::TestWithParam<bool> {};

TEST_P(Fallback, CutsTextsAsSentencePieceDoes) {
  const VocabularyOptions options{.size = 700, .character_coverage = 0.99, .byte_fallback = GetParam()};
  const std::string model = train_sentencepiece(sentences().learned, options);
  sentencepiece::SentencePieceProcessor reference;
  ASSERT_TRUE(reference.LoadFromSerializedProto(model).ok());
  const auto ours = tokenizer_from_json(sentencepiece_to_json(model, GetParam()), "tokenizer.json");
  EXPECT_EQ(ours->vocabulary_size(), size_t(reference.GetPieceSize()));
  size_t unknown = 0, bytes = 0;
  std::vector<std::string> texts = sentences().held_out;
  for (const char* text : {"", " ", "  two  spaces  ", "\xF0\x9F\x98\x80 x \xF0\x9F\x98\x80\xF0\x9F\x98\x80",
                           "</s> <0x41>", "Zoë"})
    texts.emplace_back(text);
  for (const std::string& text : texts) {
    std::vector<int> expected;
    ASSERT_TRUE(reference.Encode(text, &expected).ok());
    const Encoding found = ours->encode(text, {.add_special = false});
    EXPECT_EQ(found.ids, std::vector<TokenId>(expected.begin(), expected.end())) << text;
    std::string back;
    ASSERT_TRUE(reference.Decode(expected, &back).ok());
    if (found.unknown == 0) {
      EXPECT_EQ(ours->decode(found.ids), back);
    }
    unknown += found.unknown;
    for (const TokenId id : found.ids) bytes += reference.IsByte(int(id)) ? 1 : 0;
  }
  EXPECT_GT(texts.size(), 100u);
  if (GetParam()) {
    EXPECT_GT(bytes, 0u);
    EXPECT_EQ(unknown, 0u);
  } else {
    EXPECT_GT(unknown, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(OnOff, Fallback, testing::Bool());

TEST(TrainedVocabulary, BytesOfAnUnknownCharacterKnowTheirPlace) {
  const auto ours = learned({.size = 700, .character_coverage = 0.99, .byte_fallback = true});
  const std::string text = "a \xF0\x9F\x98\x80";
  const Encoding encoding = ours->encode(text, {.add_special = false});
  ASSERT_GE(encoding.size(), 5u);
  const size_t first = encoding.size() - 4;
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(encoding.offsets[first + i], (Span{2 + i, 3 + i}));
  EXPECT_EQ(ours->display_pieces(encoding, text).back(), "\xF0\x9F\x98\x80 4/4");
  EXPECT_EQ(ours->decode(encoding.ids), text);
}

TEST(TrainedVocabulary, BeginsWithTheSameIdsAndEndsTexts) {
  for (const auto kind : {VocabularyOptions::Kind::unigram, VocabularyOptions::Kind::bpe}) {
    const auto ours = learned({.kind = kind, .size = 600});
    EXPECT_EQ(ours->special_ids().pad, kPadId);
    EXPECT_EQ(ours->special_ids().bos, kBosId);
    EXPECT_EQ(ours->special_ids().eos, kEosId);
    EXPECT_EQ(ours->id_of("<unk>"), kUnknownId);
    for (TokenId id = 0; id < 4; ++id) EXPECT_TRUE(ours->is_special(id));
    const Encoding encoding = ours->encode("Tom");
    EXPECT_EQ(encoding.ids.back(), kEosId);
    EXPECT_EQ(ours->decode(encoding.ids), "Tom");
    EXPECT_EQ(ours->vocabulary_size(), 600u);
  }
}

TEST(TrainedVocabulary, SpellsWhatItHasSeen) {
  for (const VocabularyOptions& options :
       {VocabularyOptions{.size = 2000},
        VocabularyOptions{.kind = VocabularyOptions::Kind::bpe, .size = 600}}) {
    const auto ours = learned(options);
    for (const std::string& text : sentences().learned) {
      const Encoding encoding = ours->encode(text, {.add_special = false});
      EXPECT_EQ(encoding.unknown, 0u);
      EXPECT_EQ(encoding.dropped_bytes, 0u);
    }
    if (options.kind != VocabularyOptions::Kind::bpe) continue;
    for (const std::string& text : sentences().held_out)
      EXPECT_EQ(ours->decode(ours->encode(text).ids), text);
  }
}

TEST(TrainedVocabulary, IsTheSameEachTime) {
  for (const auto kind : {VocabularyOptions::Kind::unigram, VocabularyOptions::Kind::bpe}) {
    const VocabularyOptions options{.kind = kind, .size = 500};
    EXPECT_EQ(train_vocabulary(sentences().learned, options), train_vocabulary(sentences().learned, options));
  }
}

// Sennrich et al. 2016, worked by hand: low 5 times, lower 2, newest 6, widest 3.
TEST(ByteBpe, JoinsTheMostFrequentPairsFirst) {
  std::vector<std::string> words;
  for (const auto& [word, count] : {std::pair{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}})
    words.insert(words.end(), size_t(count), word);
  const auto json = nlohmann::json::parse(train_byte_bpe(words, 260 + 6));
  // es and st occur 9 times each (es comes first in order), then es+t 9, lo 7, lo+w 7, of the pairs of
  // new+est (6 each) the first in order is e+w.
  const std::vector<std::vector<std::string>> expected = {{"e", "s"},  {"es", "t"}, {"l", "o"},
                                                          {"lo", "w"}, {"e", "w"},  {"ew", "est"}};
  EXPECT_EQ(json["model"]["merges"].get<std::vector<std::vector<std::string>>>(), expected);
  const auto tokenizer = tokenizer_from_json(json.dump(), "tokenizer.json");
  EXPECT_EQ(tokenizer->encode("lowest").pieces, (std::vector<std::string>{"low", "est", "</s>"}));
}

TEST(ByteBpe, StopsWhereNoPairOccursTwice) {
  const std::vector<std::string> text = {"ab"};
  EXPECT_EQ(tokenizer_from_json(train_byte_bpe(text, 1000), "x")->vocabulary_size(), 260u);
}

TEST(TrainedVocabulary, RefusesWhatCannotBe) {
  const auto refusal = [](const std::vector<std::string>& text,
                          const VocabularyOptions& options) -> std::string {
    try {
      train_vocabulary(text, options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({"ab"}, {.size = 3}), HasSubstr("is 3; allowed is 5 to"));
  EXPECT_THAT(refusal({"ab"}, {.kind = VocabularyOptions::Kind::bpe, .size = 259}),
              HasSubstr("allowed is 260"));
  EXPECT_THAT(refusal({"ab"}, {.character_coverage = 1.5}), HasSubstr("coverage"));
  EXPECT_THAT(refusal({"", " "}, {}), HasSubstr("without a character"));
  EXPECT_THAT(refusal({}, {}), HasSubstr("without a character"));
  EXPECT_THAT(refusal({"a\xFF"}, {}), HasSubstr("not valid UTF-8 at byte 1"));
  EXPECT_THAT(refusal({"abcdefghij klmno"}, {.size = 8}), HasSubstr("8 pieces cannot be learned"));
}

}  // namespace
}  // namespace regard::text
