// MiniLM's tokenizer against the published Rust code.
#include <gtest/gtest.h>

#include "golden.h"
#include "regard/io/model_folder.h"
#include "regard/text/load.h"

namespace regard::text {
namespace {

class MiniLm : public testing::Test {
 protected:
  void SetUp() override {
    REGARD_NEEDS_MODEL("minilm", model_path("minilm"));
    tokenizer = load_tokenizer(io::ModelFolder::open(model_path("minilm")));
  }
  std::unique_ptr<Tokenizer> tokenizer;
};

TEST_F(MiniLm, IdsPiecesAndOffsetsEqualTheReference) {
  size_t cases = 0;
  for (const auto& line : golden_lines("tokenizers/minilm_wordpiece.jsonl")) {
    const std::string text = line["text"];
    const Encoding encoding = tokenizer->encode(text);
    EXPECT_EQ(encoding.ids, ids_of(line["ids"])) << "case " << line["i"] << ": " << text;
    EXPECT_EQ(encoding.pieces, line["tokens"].get<std::vector<std::string>>()) << "case " << line["i"];
    EXPECT_EQ(encoding.offsets, byte_spans(line["offsets"], text)) << "case " << line["i"] << ": " << text;
    ++cases;
  }
  EXPECT_EQ(cases, 483u);
}

TEST_F(MiniLm, DecodedTextEqualsTheReference) {
  for (const auto& line : golden_lines("tokenizers/minilm_wordpiece.jsonl")) {
    EXPECT_EQ(tokenizer->decode(ids_of(line["ids"])), line["decoded"].get<std::string>())
        << "case " << line["i"];
    EXPECT_EQ(tokenizer->decode(ids_of(line["ids"]), false), line["decoded_with_special"].get<std::string>())
        << "case " << line["i"];
  }
}

TEST_F(MiniLm, PairsEqualTheReference) {
  for (const auto& line : golden_lines("tokenizers/minilm_wordpiece_pairs.jsonl")) {
    const Encoding encoding =
        tokenizer->encode_pair(line["text_a"].get<std::string>(), line["text_b"].get<std::string>());
    EXPECT_EQ(encoding.ids, ids_of(line["ids"])) << "case " << line["i"];
    EXPECT_EQ(encoding.type_ids, line["type_ids"].get<std::vector<uint8_t>>()) << "case " << line["i"];
  }
}

// The file asks for truncation and padding to 128. Loading does not follow it; asking for the truncation
// does.
TEST_F(MiniLm, TruncationCutsTheLongestFirst) {
  size_t cut = 0;
  for (const auto& line : golden_lines("tokenizers/minilm_wordpiece_truncate128_pad128.jsonl")) {
    std::vector<TokenId> ids;
    for (size_t i = 0; i < line["ids"].size(); ++i)
      if (line["attention_mask"][i] == 1) ids.push_back(line["ids"][i]);
    const Encoding encoding =
        line.contains("text_a")
            ? tokenizer->encode_pair(line["text_a"].get<std::string>(), line["text_b"].get<std::string>(),
                                     {.max_length = 128})
            : tokenizer->encode(line["text"].get<std::string>(), {.max_length = 128});
    EXPECT_EQ(encoding.ids, ids) << "case " << line["i"];
    cut += encoding.truncated > 0;
  }
  EXPECT_GT(cut, 0u);
}

TEST_F(MiniLm, VocabTxtGivesTheSameTokenizer) {
  std::ifstream file(model_path("minilm") / "vocab.txt");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto other = tokenizer_from_vocab_txt(text, "vocab.txt", true);
  EXPECT_EQ(other->vocabulary_size(), tokenizer->vocabulary_size());
  for (const auto& line : golden_lines("tokenizers/minilm_wordpiece.jsonl"))
    EXPECT_EQ(other->encode(line["text"].get<std::string>()).ids, ids_of(line["ids"]))
        << "case " << line["i"];
}

TEST_F(MiniLm, SaysWhichTokensAreSpecialUnknownAndContinuations) {
  const Encoding encoding = tokenizer->encode("tiredness 苹 [SEP]");
  EXPECT_EQ(encoding.pieces,
            (std::vector<std::string>{"[CLS]", "tired", "##ness", "[UNK]", "[SEP]", "[SEP]"}));
  EXPECT_EQ(encoding.special, (std::vector<uint8_t>{1, 0, 0, 0, 1, 1}));
  EXPECT_EQ(encoding.continues, (std::vector<uint8_t>{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(encoding.unknown, 1u);
  const auto& ids = tokenizer->special_ids();
  EXPECT_EQ(ids.cls, 101);
  EXPECT_EQ(ids.sep, 102);
  EXPECT_EQ(ids.pad, 0);
  EXPECT_EQ(ids.unk, 100);
  EXPECT_EQ(ids.mask, 103);
}

TEST_F(MiniLm, SpecialTokensWrittenInTheTextAreSpelledOutOnRequest) {
  const Encoding encoding = tokenizer->encode("[SEP]", {.add_special = false, .parse_special = false});
  EXPECT_EQ(encoding.pieces, (std::vector<std::string>{"[", "sep", "]"}));
  EXPECT_EQ(encoding.special, (std::vector<uint8_t>{0, 0, 0}));
}

TEST_F(MiniLm, AMillionLettersAreOneUnknownWord) {
  const std::string text(1'000'000, 'a');
  EXPECT_EQ(tokenizer->encode(text, {.add_special = false}).pieces, std::vector<std::string>{"[UNK]"});
}

}  // namespace
}  // namespace regard::text
