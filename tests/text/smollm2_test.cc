// SmolLM2's tokenizer, from its GGUF file, against llama.cpp and the published Rust code, which agree.
#include <gtest/gtest.h>

#include "golden.h"
#include "regard/io/gguf.h"
#include "regard/text/byte_bpe.h"
#include "regard/text/load.h"

namespace regard::text {
namespace {

std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

class SmolLm2 : public testing::Test {
 protected:
  static std::filesystem::path file() { return model_path("smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"; }
  void SetUp() override {
    REGARD_NEEDS_MODEL("smollm2", file());
    static const std::shared_ptr<Tokenizer> shared = load_tokenizer(io::Gguf::open(file()));
    tokenizer = shared;
  }
  std::shared_ptr<Tokenizer> tokenizer;
};

TEST_F(SmolLm2, IdsEqualTheReference) {
  size_t cases = 0;
  for (const auto& line : golden_lines("tokenizers/smollm2_bpe.jsonl")) {
    const std::string text = line["text"];
    EXPECT_EQ(tokenizer->encode(text).ids, ids_of(line["ids"])) << "case " << line["i"] << ": " << text;
    const auto& plain = line.contains("ids_no_special") ? line["ids_no_special"] : line["ids"];
    EXPECT_EQ(tokenizer->encode(text, {.parse_special = false}).ids, ids_of(plain))
        << "case " << line["i"] << ": " << text;
    ++cases;
  }
  EXPECT_EQ(cases, 483u);
}

TEST_F(SmolLm2, DecodingGivesTheTextBackExceptForBytesWithoutAToken) {
  size_t lossy = 0;
  for (const auto& line : golden_lines("tokenizers/smollm2_bpe.jsonl")) {
    const std::string text = line["text"];
    const Encoding encoding = tokenizer->encode(text);
    const std::string decoded = line.contains("decoded") ? line["decoded"].get<std::string>() : text;
    EXPECT_EQ(tokenizer->decode(encoding.ids, false), decoded) << "case " << line["i"];
    const std::string plain =
        line.contains("decoded_skip_special") ? line["decoded_skip_special"].get<std::string>() : decoded;
    EXPECT_EQ(tokenizer->decode(encoding.ids), plain) << "case " << line["i"];
    lossy += encoding.dropped_bytes > 0;
    EXPECT_EQ(encoding.dropped_bytes > 0, decoded != text) << "case " << line["i"];
  }
  EXPECT_EQ(lossy, 1u);
}

TEST_F(SmolLm2, TheTwentyOneBytesWithoutATokenAreDroppedAndCounted) {
  EXPECT_EQ(dynamic_cast<const ByteBpe&>(*tokenizer).missing_bytes(), 21u);
  const Encoding encoding = tokenizer->encode(
      "a\x04"
      "b");
  EXPECT_EQ(encoding.dropped_bytes, 1u);
  EXPECT_EQ(tokenizer->decode(encoding.ids), "ab");
  EXPECT_EQ(encoding.offsets, (std::vector<Span>{{0, 1}, {2, 3}}));
}

TEST_F(SmolLm2, OffsetsAreTheBytesThatTokensStandFor) {
  for (const auto& line : golden_lines("tokenizers/smollm2_bpe.jsonl")) {
    const std::string text = line["text"];
    const Encoding encoding = tokenizer->encode(text);
    size_t covered = 0, end = 0;
    for (size_t i = 0; i < encoding.size(); ++i) {
      const Span span = encoding.offsets[i];
      EXPECT_GE(span.begin, end) << "case " << line["i"];
      end = span.end;
      covered += span.end - span.begin;
      std::string bytes;
      tokenizer->append_bytes(encoding.ids[i], false, bytes);
      EXPECT_EQ(bytes, text.substr(span.begin, span.end - span.begin)) << "case " << line["i"];
    }
    EXPECT_EQ(covered + encoding.dropped_bytes, text.size());
  }
}

TEST_F(SmolLm2, DecodedRandomIdsEqualTheReference) {
  for (const auto& line : golden_lines("tokenizers/smollm2_decode.jsonl")) {
    const auto ids = ids_of(line["ids"]);
    for (size_t i = 0; i < ids.size(); ++i) {
      std::string bytes;
      tokenizer->append_bytes(ids[i], i == 0, bytes);
      EXPECT_EQ(bytes, from_hex(line["pieces_hex"][i])) << "case " << line["i"] << ", token " << i;
    }
    EXPECT_EQ(tokenizer->decode(ids, false), line["text_replace"].get<std::string>()) << "case " << line["i"];
    EXPECT_EQ(tokenizer->decode(ids), line["text_skip_special"].get<std::string>()) << "case " << line["i"];
  }
}

TEST_F(SmolLm2, ChatsEqualTheReference) {
  for (const auto& line : golden_lines("tokenizers/smollm2_chat.jsonl")) {
    std::vector<Message> messages;
    for (const auto& message : line["messages"]) messages.push_back({message["role"], message["content"]});
    const std::string text = tokenizer->apply_chat_template(messages, line["add_generation_prompt"]);
    EXPECT_EQ(text, line["text"].get<std::string>()) << "case " << line["i"];
    EXPECT_EQ(tokenizer->encode(text).ids, ids_of(line["ids"])) << "case " << line["i"];
  }
}

TEST_F(SmolLm2, AMillionEqualLettersTakeNearLinearTime) {
  // A quadratic merge (10^12 steps) would run into the limit of a test.
  const std::string text(1'000'000, 'a');
  const Encoding encoding = tokenizer->encode(text);
  EXPECT_EQ(tokenizer->decode(encoding.ids), text);
}

}  // namespace
}  // namespace regard::text
