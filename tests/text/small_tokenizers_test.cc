// Small tokenizer.json files of every kind against the published Rust code.
#include <gtest/gtest.h>

#include <algorithm>

#include "golden.h"
#include "regard/io/json.h"
#include "regard/text/charsmap.h"
#include "regard/text/load.h"
#include "regard/text/pre_split.h"
#include "regard/text/unicode.h"

namespace regard::text {
namespace {

std::unique_ptr<Tokenizer> small(const std::string& name) {
  return tokenizer_from_json(golden_text("tokenizers-small/" + name + ".json"), name + ".json");
}

TEST(PreSplit, PiecesEqualTheReference) {
  const std::pair<const char*, PreSplit> kinds[] = {{"gpt2", PreSplit::gpt2},
                                                    {"smollm", PreSplit::smollm},
                                                    {"llama3", PreSplit::llama3},
                                                    {"qwen2", PreSplit::qwen2}};
  for (const auto& line : golden_lines("tokenizers-small/pre_split.jsonl")) {
    const std::string text = line["text"];
    for (const auto& [name, kind] : kinds) {
      std::vector<size_t> lengths;
      size_t end = 0;
      pre_split(kind, text, [&](Span piece) {
        EXPECT_EQ(piece.begin, end);
        end = piece.end;
        lengths.push_back(piece.end - piece.begin);
      });
      EXPECT_EQ(end, text.size());
      EXPECT_EQ(lengths, line[name].get<std::vector<size_t>>()) << name << ": " << line["text"];
    }
  }
}

class SmallBpe : public testing::TestWithParam<const char*> {};

TEST_P(SmallBpe, IdsOffsetsAndDecodedTextEqualTheReference) {
  const auto tokenizer = small(GetParam());
  for (const auto& line : golden_lines(std::string("tokenizers-small/") + GetParam() + ".jsonl")) {
    const std::string text = line["text"];
    const Encoding encoding = tokenizer->encode(text);
    EXPECT_EQ(encoding.ids, ids_of(line["ids"])) << line["text"];
    EXPECT_EQ(tokenizer->decode(ids_of(line["ids"]), false), line["decoded"].get<std::string>());
    // The reference counts whole characters, ours the bytes that a token holds of them.
    std::vector<Span> characters = encoding.offsets;
    const auto inside = [&](size_t at) { return at < text.size() && (text[at] & 0xC0) == 0x80; };
    for (Span& span : characters) {
      while (inside(span.begin)) --span.begin;
      while (inside(span.end)) ++span.end;
    }
    // Composed characters: the reference names the first of their code points, ours names all.
    const bool composes = std::string(GetParam()) == "bpe_qwen2" && to_nfc(text) != text;
    if (!composes) {
      EXPECT_EQ(characters, byte_spans(line["offsets"], text)) << line["text"];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SmallBpe, testing::Values("bpe_gpt2", "bpe_llama3", "bpe_qwen2"));

TEST(SmallUnigram, IdsAndDecodedTextEqualTheReference) {
  const auto tokenizer = small("unigram");
  size_t compared = 0;
  for (const auto& line : golden_lines("tokenizers-small/unigram.jsonl")) {
    EXPECT_EQ(tokenizer->decode(ids_of(line["ids"])), line["decoded"].get<std::string>()) << line["text"];
    if (line.value("quirk", false)) continue;
    EXPECT_EQ(tokenizer->encode(line["text"].get<std::string>(), {.parse_special = true}).ids,
              ids_of(line["ids"]))
        << line["text"];
    ++compared;
  }
  EXPECT_GT(compared, 200u);
}

TEST(SmallUnigram, NormalisationEqualsSentencePiece) {
  const io::Json root = io::parse_json(golden_text("tokenizers-small/unigram.json"), "unigram.json");
  const Charsmap map = Charsmap::from_base64(
      root["normalizer"]["normalizers"][0]["precompiled_charsmap"].get<std::string>(), "map");
  size_t changed = 0;
  for (const auto& line : golden_lines("tokenizers-small/unigram.jsonl")) {
    if (!line.contains("normalized")) continue;
    const std::string text = line["text"];
    // SentencePiece then drops spaces at the ends, keeps one of each run and marks them.
    std::string marked;
    bool space = true;
    const std::string normalized = map.normalize(text, 0).text();
    for (const char c : normalized) {
      if (c != ' ') marked += (space ? "\xE2\x96\x81" : "") + std::string(1, c);
      space = c == ' ';
    }
    EXPECT_EQ(marked, line["normalized"].get<std::string>()) << line["text"];
    changed += normalized != text;
  }
  EXPECT_GT(changed, 50u);
}

TEST(SmallUnigram, ControlTokensInATextAreSpelledOutByDefault) {
  const auto tokenizer = small("unigram");
  const Encoding encoding = tokenizer->encode("a</s>b <mask>", {.add_special = false});
  EXPECT_EQ(std::count(encoding.special.begin(), encoding.special.end(), 1), 0);
  EXPECT_GT(encoding.size(), 4u);
}

TEST(SmallBpe, ABeginningOfTextIsAddedAsTheFileSays) {
  const auto tokenizer = small("bpe_llama3");
  EXPECT_EQ(tokenizer->encode("a").pieces.front(), "<|begin_of_text|>");
  EXPECT_EQ(tokenizer->encode("a", {.add_special = false}).pieces.front(), "a");
  EXPECT_EQ(tokenizer->added_special_count(), 1u);
}

TEST(SmallBpe, ACharacterSplitOverTokensIsShownWholeWithItsPart) {
  const auto tokenizer = small("bpe_gpt2");
  const std::string text = "x\xF0\x9F\xA6\x8A";  // a fox, in several tokens of this vocabulary
  const Encoding encoding = tokenizer->encode(text);
  ASSERT_GE(encoding.size(), 3u);
  const auto shown = tokenizer->display_pieces(encoding, text);
  const std::string count = std::to_string(encoding.size() - 1);
  EXPECT_EQ(shown[0], "x");
  EXPECT_EQ(shown[1], "\xF0\x9F\xA6\x8A 1/" + count);
  EXPECT_EQ(shown.back(), "\xF0\x9F\xA6\x8A " + count + "/" + count);
  EXPECT_EQ(tokenizer->display_piece(*tokenizer->id_of("Ġ")), "␣");
  EXPECT_EQ(tokenizer->display_piece(*tokenizer->id_of("Ċ")), "↵");
  EXPECT_EQ(tokenizer->display_piece(*tokenizer->id_of("ð")), "<F0>");
}

}  // namespace
}  // namespace regard::text
