// Tasks for decoders: a prompt and an answer, of which the answer counts.
#include "regard/train/answers.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "regard/model/generate.h"
#include "regard/model/load.h"
#include "regard/text/load.h"
#include "regard/train/byte_tokenizer.h"
#include "regard/train/evaluate.h"
#include "regard/train/generated_task.h"
#include "regard/train/language_model.h"
#include "regard/train/optimizer.h"
#include "tests/io/files.h"

namespace regard::train {
namespace {

using ::testing::HasSubstr;

constexpr GeneratedTask kRecall{
    .kind = GeneratedTask::Kind::recall, .symbols = 5, .shortest = 1, .longest = 3, .seed = 2};

std::unique_ptr<text::Tokenizer> tokenizer_of(const GeneratedTask& task) {
  return text::tokenizer_from_json(word_vocabulary(words_of(task), text::kBosId), "words");
}

TEST(Answers, FillPiecesWithWholeTextsOfWhichTheAnswersAreLearned) {
  const auto tokenizer = tokenizer_of(kRecall);
  const std::vector<TextPair> texts = generate(kRecall, 40, 0);
  const int64_t length = 32;
  const TokenText packed = answer_text(*tokenizer, texts, length);
  ASSERT_EQ(packed.tokens.size() % 32, 1u);
  ASSERT_EQ(packed.documents.size(), packed.tokens.size());
  ASSERT_EQ(packed.learned.size(), packed.tokens.size());
  size_t text = 0;
  for (size_t begin = 0; begin < packed.tokens.size();) {
    size_t end = begin;
    while (end < packed.tokens.size() && packed.documents[end] == packed.documents[begin]) ++end;
    const std::vector<int32_t> ids(packed.tokens.begin() + std::ptrdiff_t(begin),
                                   packed.tokens.begin() + std::ptrdiff_t(end));
    if (ids[0] == text::kPadId) {
      for (size_t i = begin; i < end; ++i) EXPECT_EQ(packed.learned[i], 0);
    } else {
      EXPECT_EQ(begin / 32, (end - 1) / 32);
      std::string prompt, answer;
      for (size_t i = begin; i < end; ++i) {
        std::string& of = packed.learned[i] != 0 ? answer : prompt;
        of += (of.empty() ? "" : " ") + std::string(tokenizer->piece_of(packed.tokens[i]));
      }
      const auto plain = [](std::string pieces) {
        for (size_t at; (at = pieces.find("\xE2\x96\x81")) != std::string::npos;) pieces.erase(at, 3);
        return pieces;
      };
      EXPECT_EQ(plain(prompt), texts[text].source + " <s>");
      EXPECT_EQ(plain(answer), texts[text].references[0] + " </s>");
      ++text;
    }
    begin = end;
  }
  EXPECT_EQ(text, texts.size());
  // Nothing of a prompt is a target, and no pass begins within a text.
  TokenStream stream(packed, length, 3, 5);
  std::set<int64_t> first;
  for (int64_t step = 0; step < 3 * stream.batches_per_pass(); ++step) {
    const TokenBatch batch = stream.at(step);
    for (int64_t row = 0; row < 3; ++row) {
      first.insert(batch.ids[row][0].item<int64_t>());
      EXPECT_EQ(batch.positions[row][0].item<int64_t>(), 0);
    }
    const at::Tensor asked = batch.ids.eq(text::kBosId);
    EXPECT_TRUE(batch.next.masked_select(asked).ne(kNothing).all().item<bool>());
    EXPECT_GT(batch.next.eq(kNothing).sum().item<int64_t>(), batch.next.numel() / 2);
  }
  for (const int64_t id : first) EXPECT_TRUE(tokenizer->piece_of(id).find('k') != std::string::npos);
}

TEST(Answers, WhatDoesNotFitIsRefused) {
  const auto tokenizer = tokenizer_of(kRecall);
  const auto refusal = [&](const text::Tokenizer& by, const GeneratedTask& task, int64_t length) {
    return io::message_of<std::invalid_argument>([&] { answer_text(by, generate(task, 20, 0), length); });
  };
  EXPECT_THAT(refusal(*tokenizer, kRecall, 8), HasSubstr("the model takes at most 8"));
  EXPECT_THAT(refusal(*tokenizer, {.symbols = 9}, 64), HasSubstr("is not that of a task"));
  const auto bytes = text::tokenizer_from_json(byte_tokenizer_json(), "bytes");
  EXPECT_THAT(refusal(*bytes, kRecall, 64), HasSubstr("is not that of a task"));
}

// A decoder learns to copy; the share of right answers is that of greedy decoding, of the saved model too.
TEST(Answers, AreLearnedAndCountedAsGreedyDecodingWritesThem) {
  const io::TemporaryFolder folder;
  io::write_all(folder / "copy.toml", R"(
[data]
task = "copy"
symbols = 4
shortest = 1
length = 3
texts = 2000
valid_texts = 60
[model]
layers = 2
width = 32
heads = 2
[train]
steps = 400
length = 64
batch = 8
rate = 5e-3
schedule = "constant"
)");
  const Recipe recipe = read_recipe(folder / "copy.toml");
  EXPECT_EQ(recipe.train.best, Metric::accuracy);
  LanguageModel task(recipe);
  Optimizer optimizer(recipe.train.optimizer, task.parameters());
  const auto learn = [&](int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      optimizer.zero_gradients();
      task.loss(step).backward();
      optimizer.step(recipe.train.schedule.rate);
    }
  };
  EXPECT_LT(*task.validate(0)->accuracy, 0.3);
  learn(0, 40);
  const std::vector<TextPair> texts = generate(*std::get<LanguageModelRecipe>(recipe.task).data.task, 60, 1);
  const Validation half = *task.validate(40);
  int64_t right = 0;
  for (const TextPair& text : texts) {
    const std::vector<int64_t> prompt = task.tokenizer().encode(text.source).ids;
    model::GenerateOptions options;
    options.max_tokens = 5;
    options.stop_ids = {text::kEosId};
    options.sampling.temperature = 0;
    right +=
        task.tokenizer().decode(model::generate(task.model(), prompt, options).ids) == text.references[0];
  }
  EXPECT_GT(right, 0);
  EXPECT_LT(right, 60);
  EXPECT_DOUBLE_EQ(*half.accuracy, static_cast<double>(right) / 60);
  learn(40, 400);
  const Validation end = *task.validate(400);
  EXPECT_GT(*end.accuracy, 0.95);
  task.save(folder.path());
  const AnswerQuality read = evaluate(model::load(folder.path().string()), texts);
  EXPECT_EQ(read.texts, 60);
  EXPECT_EQ(read.tokens, end.tokens);
  EXPECT_DOUBLE_EQ(read.accuracy, *end.accuracy);
  EXPECT_NEAR(read.loss, end.loss, 1e-5);
}

}  // namespace
}  // namespace regard::train
