#include "regard/text/words.h"

#include <gtest/gtest.h>

#include "golden.h"
#include "regard/io/e5_file.h"
#include "regard/io/gguf.h"
#include "regard/io/model_folder.h"
#include "regard/text/load.h"

namespace regard::text {
namespace {

std::vector<std::string> texts(const std::vector<Word>& words) {
  std::vector<std::string> out;
  for (const Word& word : words) out.push_back(word.text);
  return out;
}

std::vector<std::string> words_of(const Tokenizer& tokenizer, const std::string& text) {
  return texts(group_words(tokenizer.encode(text), text));
}

using Strings = std::vector<std::string>;

TEST(Words, WordPieceMergesContinuations) {
  REGARD_NEEDS_MODEL("minilm", model_path("minilm"));
  const auto tokenizer = load_tokenizer(io::ModelFolder::open(model_path("minilm")));
  const std::string text = "The tiredness didn't end, (truly).";
  const auto words = group_words(tokenizer->encode(text), text);
  EXPECT_EQ(texts(words), (Strings{"[CLS]", "The", "tiredness", "didn", "'", "t", "end", ",", "(", "truly",
                                   ")", ".", "[SEP]"}));
  EXPECT_TRUE(words[0].is_special);
  EXPECT_FALSE(words[1].is_special);
  EXPECT_EQ(words[2].tokens, (std::vector<size_t>{2, 3}));
  EXPECT_EQ(words[2].bytes, (Span{4, 13}));
  EXPECT_TRUE(words[7].is_punctuation);
  EXPECT_FALSE(words[9].is_punctuation);
  EXPECT_EQ(words_of(*tokenizer, "苹"),
            (Strings{"[CLS]", "苹", "[SEP]"}));  // unknown, but a word of the text
}

TEST(Words, WordPiecePairsCountInTheirOwnTexts) {
  REGARD_NEEDS_MODEL("minilm", model_path("minilm"));
  const auto tokenizer = load_tokenizer(io::ModelFolder::open(model_path("minilm")));
  const auto words = group_words(tokenizer->encode_pair("one two", "three"), "one two", "three");
  EXPECT_EQ(texts(words), (Strings{"[CLS]", "one", "two", "[SEP]", "three", "[SEP]"}));
  EXPECT_EQ(words[4].text_index, 1);
  EXPECT_EQ(words[4].bytes, (Span{0, 5}));
}

TEST(Words, ByteLevelBpeMergesUpToTheNextSpace) {
  const auto file = model_path("smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf";
  REGARD_NEEDS_MODEL("smollm2", file);
  const auto tokenizer = load_tokenizer(io::Gguf::open(file));
  EXPECT_EQ(words_of(*tokenizer, "The unbelievableness didn't cost $1234, ok?\nNew line"),
            (Strings{"The", "unbelievableness", "didn't", "cost", "$", "1234", ",", "ok", "?", "↵", "New",
                     "line"}));
  // A character that is split over tokens stays in one word.
  EXPECT_EQ(words_of(*tokenizer, "x 龘靐 y"), (Strings{"x", "龘", "靐", "y"}));
  EXPECT_EQ(words_of(*tokenizer, "<|im_start|>user"), (Strings{"<|im_start|>", "user"}));
}

TEST(Words, UnigramKeepsChinesePiecewise) {
  const auto file = model_path("e5") / "e5-small-q4.bin";
  REGARD_NEEDS_MODEL("e5", file);
  const auto tokenizer = load_tokenizer(io::E5File::open(file));
  EXPECT_EQ(words_of(*tokenizer, "我吃了一个苹果。"),
            (Strings{"<s>", "我", "吃", "了一个", "苹果", "。", "</s>"}));
  EXPECT_EQ(words_of(*tokenizer, "Untergrundbahn fährt, ja!"),
            (Strings{"<s>", "Untergrundbahn", "fährt", ",", "ja", "!", "</s>"}));
}

TEST(Words, EveryTokenIsInExactlyOneWordInOrder) {
  const auto file = model_path("smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf";
  REGARD_NEEDS_MODEL("smollm2", file);
  const auto tokenizer = load_tokenizer(io::Gguf::open(file));
  for (const auto& line : golden_lines("tokenizers/smollm2_bpe.jsonl")) {
    const std::string text = line["text"];
    const Encoding encoding = tokenizer->encode(text);
    size_t next = 0;
    for (const Word& word : group_words(encoding, text))
      for (const size_t token : word.tokens) EXPECT_EQ(token, next++) << text;
    EXPECT_EQ(next, encoding.size());
  }
}

TEST(Words, AnotherTextThanTheEncodedOneIsRefused) {
  Encoding encoding;
  encoding.ids = {1};
  encoding.pieces = {"abc"};
  encoding.offsets = {{0, 3}};
  encoding.special = encoding.continues = encoding.type_ids = encoding.text_index = {0};
  EXPECT_EQ(group_words(encoding, "abc").size(), 1u);
  EXPECT_THROW(group_words(encoding, "ab"), std::invalid_argument);
  EXPECT_THROW(group_words(encoding, "ab\xFF"), std::invalid_argument);
}

}  // namespace
}  // namespace regard::text
