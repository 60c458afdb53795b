// What holds of every text: random Unicode, random bytes, and the classic malformed UTF-8.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "golden.h"
#include "regard/io/e5_file.h"
#include "regard/io/gguf.h"
#include "regard/io/model_folder.h"
#include "regard/text/load.h"
#include "regard/text/utf8.h"
#include "regard/text/words.h"

namespace regard::text {
namespace {

// One of each kind from small files that are always there, and the installed models.
std::vector<std::pair<std::string, std::unique_ptr<Tokenizer>>> all_tokenizers() {
  std::vector<std::pair<std::string, std::unique_ptr<Tokenizer>>> out;
  for (const char* name : {"bpe_gpt2", "bpe_llama3", "bpe_qwen2", "unigram"})
    out.emplace_back(
        name, tokenizer_from_json(golden_text("tokenizers-small/" + std::string(name) + ".json"), name));
  out.emplace_back(
      "vocab.txt",
      tokenizer_from_vocab_txt("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n##a\nb\n##b\n,\n我\n", "vocab.txt", true));
  if (const auto path = model_path("minilm"); std::filesystem::exists(path))
    out.emplace_back("minilm", load_tokenizer(io::ModelFolder::open(path)));
  if (const auto path = model_path("e5") / "e5-small-q4.bin"; std::filesystem::exists(path))
    out.emplace_back("e5", load_tokenizer(io::E5File::open(path)));
  if (const auto path = model_path("smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf";
      std::filesystem::exists(path))
    out.emplace_back("smollm2", load_tokenizer(io::Gguf::open(path)));
  return out;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  size_t below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(engine_); }

  std::string text() {
    static constexpr std::pair<char32_t, char32_t> kRanges[] = {
        {0x20, 0x7E},     {0, 0x1F},           {0x7F, 0xFF},      {0x300, 0x36F},   {0x370, 0x5FF},
        {0x600, 0x6FF},   {0x900, 0xDFF},      {0xE00, 0xEFF},    {0x1100, 0x11FF}, {0x2000, 0x20FF},
        {0x2580, 0x259F}, {0x3000, 0x30FF},    {0x4E00, 0x9FFF},  {0xAC00, 0xD7A3}, {0xE000, 0xE010},
        {0xF900, 0xFFFF}, {0x10000, 0x10FFFF}, {0x1F300, 0x1F9FF}};
    std::string out;
    const size_t length = below(40);
    for (size_t i = 0; i < length; ++i) {
      if (below(4) == 0) {
        static constexpr const char* kParts[] = {" ",     "  ",         "\n", "'s", "<s>",
                                                 "[SEP]", "<|im_end|>", "▁",  "1",  "the "};
        out += kParts[below(std::size(kParts))];
        continue;
      }
      const auto [low, high] = kRanges[below(std::size(kRanges))];
      append_utf8(low + char32_t(below(high - low + 1)), out);
    }
    return out;
  }

  std::string bytes() {
    std::string out(below(30), '\0');
    for (char& c : out) c = static_cast<char>(below(3) ? below(256) : below(128));
    return out;
  }

 private:
  std::mt19937 engine_;
};

void check_encoding(const Tokenizer& tokenizer, const Encoding& encoding, const std::string& text) {
  ASSERT_EQ(encoding.pieces.size(), encoding.size());
  ASSERT_EQ(encoding.offsets.size(), encoding.size());
  ASSERT_EQ(encoding.special.size(), encoding.size());
  ASSERT_EQ(encoding.continues.size(), encoding.size());
  ASSERT_EQ(encoding.type_ids.size(), encoding.size());
  ASSERT_EQ(encoding.text_index.size(), encoding.size());
  for (size_t i = 0; i < encoding.size(); ++i) {
    ASSERT_LE(encoding.offsets[i].begin, encoding.offsets[i].end);
    ASSERT_LE(encoding.offsets[i].end, text.size());
    ASSERT_EQ(encoding.pieces[i], tokenizer.piece_of(encoding.ids[i]));
  }
  const auto shown = tokenizer.display_pieces(encoding, text);
  ASSERT_EQ(shown.size(), encoding.size());
  for (const std::string& piece : shown) {
    ASSERT_FALSE(find_invalid_utf8(piece)) << piece;
    ASSERT_EQ(piece.find('\n'), std::string::npos);
  }
  size_t tokens = 0;
  for (const Word& word : group_words(encoding, text)) {
    ASSERT_FALSE(find_invalid_utf8(word.text));
    tokens += word.tokens.size();
  }
  ASSERT_EQ(tokens, encoding.size());
  // Streaming gives the decoded text, always whole characters.
  StreamDecoder stream(tokenizer);
  std::string streamed;
  for (const TokenId id : encoding.ids) {
    const std::string part = stream.push(id);
    ASSERT_FALSE(find_invalid_utf8(part));
    streamed += part;
  }
  streamed += stream.finish();
  ASSERT_EQ(streamed, tokenizer.decode(encoding.ids));
}

TEST(AnyText, IsEncodedWithoutACrashAndByteLevelBpeGivesItBack) {
  for (const auto& [name, tokenizer] : all_tokenizers()) {
    SCOPED_TRACE(name);
    Random random(1);
    for (int round = 0; round < 400; ++round) {
      const std::string text = random.text();
      SCOPED_TRACE(text);
      const Encoding encoding = tokenizer->encode(text);
      ASSERT_NO_FATAL_FAILURE(check_encoding(*tokenizer, encoding, text));
      ASSERT_NO_FATAL_FAILURE(check_encoding(
          *tokenizer,
          tokenizer->encode(text, {.parse_special = !tokenizer->kind().starts_with("Uni") ? false : true}),
          text));
      // Promised for bytes without normalisation, where nothing was dropped and special tokens are spelled
      // out.
      if (name == "bpe_gpt2" || name == "bpe_llama3" || name == "smollm2") {
        const Encoding plain = tokenizer->encode(text, {.add_special = false, .parse_special = false});
        if (plain.dropped_bytes == 0) {
          ASSERT_EQ(tokenizer->decode(plain.ids), text);
        } else {
          ASSERT_EQ(name, "smollm2");
        }
      }
    }
  }
}

TEST(AnyText, RandomBytesAreEncodedOrRefusedWithTheOffset) {
  const auto tokenizers = all_tokenizers();
  Random random(2);
  size_t refused = 0;
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random.bytes();
    const auto invalid = find_invalid_utf8(text);
    refused += invalid.has_value();
    for (const auto& [name, tokenizer] : tokenizers) {
      try {
        tokenizer->encode(text);
        ASSERT_FALSE(invalid);
      } catch (const InvalidUtf8& error) {
        ASSERT_EQ(error.offset(), invalid);
      }
    }
  }
  EXPECT_GT(refused, 100u);
}

TEST(AnyText, RandomIdsAreDecodedToValidUtf8) {
  for (const auto& [name, tokenizer] : all_tokenizers()) {
    Random random(3);
    for (int round = 0; round < 200; ++round) {
      std::vector<TokenId> ids(random.below(20));
      for (TokenId& id : ids) id = TokenId(random.below(tokenizer->vocabulary_size()));
      ASSERT_FALSE(find_invalid_utf8(tokenizer->decode(ids))) << name;
      for (const TokenId id : ids) ASSERT_FALSE(find_invalid_utf8(tokenizer->display_piece(id))) << name;
    }
    const std::vector<TokenId> beyond{TokenId(tokenizer->vocabulary_size())}, negative{-1};
    EXPECT_THROW(tokenizer->decode(beyond), std::invalid_argument);
    EXPECT_THROW(tokenizer->decode(negative), std::invalid_argument);
  }
}

TEST(InvalidText, IsRefusedAtItsFirstWrongByte) {
  const auto tokenizer = tokenizer_from_json(golden_text("tokenizers-small/bpe_gpt2.json"), "bpe_gpt2");
  const std::pair<std::string, size_t> kCases[] = {{"\xC0\xAF", 0},
                                                   {"ab\xED\xA0\x80", 2},
                                                   {"\xF4\x90\x80\x80", 0},
                                                   {"a\x80", 1},
                                                   {"我\xE2\x98", 3},
                                                   {"\xFE", 0},
                                                   {"x\xFF y", 1},
                                                   {"\xE0\x80\x80", 0},
                                                   {"\xC1\x81", 0},
                                                   {"\xF0\x80\x80\x80", 0},
                                                   {"\xF8\x88\x80\x80\x80", 0}};
  for (const auto& [text, offset] : kCases) {
    try {
      tokenizer->encode(text);
      ADD_FAILURE() << "accepted";
    } catch (const InvalidUtf8& error) {
      EXPECT_EQ(error.offset(), offset);
      EXPECT_EQ(std::string(error.what()), "text is not valid UTF-8 at byte " + std::to_string(offset));
    }
  }
}

TEST(OddButValidText, NulByteOrderMarkAndCrLfComeBack) {
  const auto tokenizer = tokenizer_from_json(golden_text("tokenizers-small/bpe_gpt2.json"), "bpe_gpt2");
  for (const std::string& text : {std::string("a\0b", 3), std::string("\xEF\xBB\xBFx"),
                                  std::string("a\r\nb\r\n"), std::string("\xEF\xBF\xBF"), std::string()})
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text).ids), text);
}

TEST(StreamDecoding, NeverHoldsBackMoreThanHalfACharacter) {
  const auto tokenizer = tokenizer_from_json(golden_text("tokenizers-small/bpe_gpt2.json"), "bpe_gpt2");
  const std::string fox = "\xF0\x9F\xA6\x8A";
  const Encoding encoding = tokenizer->encode(fox + "a");
  StreamDecoder stream(*tokenizer);
  std::string out;
  for (size_t i = 0; i + 1 < encoding.size(); ++i) {
    EXPECT_EQ(out, "");
    out += stream.push(encoding.ids[i]);
  }
  EXPECT_EQ(out, fox);  // as soon as its last byte is there
  EXPECT_EQ(stream.push(encoding.ids.back()), "a");
  EXPECT_EQ(stream.finish(), "");
  // Cut inside a character: the rest is one replacement, and a wrong continuation loses nothing.
  EXPECT_EQ(stream.push(encoding.ids[0]), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  std::string broken = stream.push(encoding.ids[0]);
  broken += stream.push(encoding.ids.back());
  broken += stream.finish();
  EXPECT_EQ(broken,
            "\xEF\xBF\xBD"
            "a");
}

TEST(MaxLength, CutsTheTextAndKeepsTheSpecialTokens) {
  const auto tokenizer = tokenizer_from_vocab_txt("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", "vocab.txt", true);
  const Encoding encoding = tokenizer->encode("a a a a", {.max_length = 4});
  EXPECT_EQ(encoding.ids, (std::vector<TokenId>{2, 4, 4, 3}));
  EXPECT_EQ(encoding.truncated, 2u);
  EXPECT_EQ(tokenizer->encode("a a", {.max_length = 4}).truncated, 0u);
  EXPECT_EQ(tokenizer->encode("a a", {.max_length = 2}).ids, (std::vector<TokenId>{2, 3}));
  EXPECT_THROW(tokenizer->encode("a a", {.max_length = 1}), std::invalid_argument);
}

TEST(LongText, AMillionLettersTakeAboutLinearTime) {
  for (const auto& [name, tokenizer] : all_tokenizers())
    for (const char* unit : {"a", "ab", "a ", "  ", "\n", "我", "e\xCC\x81", "1", "'", "\xEF\xB7\xBA"}) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      SCOPED_TRACE(name + ", " + unit);
      tokenizer->encode(text);
    }
}

}  // namespace
}  // namespace regard::text
