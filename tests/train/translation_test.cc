// Small translators trained for a few steps.
#include "regard/train/translation.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "regard/io/error.h"
#include "regard/model/load_translator.h"
#include "regard/model/translate.h"
#include "regard/text/train_vocabulary.h"
#include "regard/train/evaluate.h"
#include "regard/train/loop.h"
#include "regard/train/make_task.h"
#include "tests/io/files.h"

namespace regard::train {
namespace {

constexpr const char* kTransformer = R"(
[model]
architecture = "transformer"
layers = 1
width = 32
heads = 2
feed_forward = 64
dropout = 0.1
)";
constexpr const char* kRnn = R"(
[model]
architecture = "rnn"
attention = "additive"
embedding = 24
width = 32
encoder_width = 16
dropout = 0.1
)";

class Translate : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* subjects[][2] = {{"I", "je"}, {"you", "tu"}, {"we", "nous"}, {"they", "ils"}};
    const char* verbs[][2] = {{"eat", "mange"}, {"sleep", "dors"}, {"read", "lis"}, {"sing", "chante"}};
    const char* ends[][2] = {{"now", "maintenant"}, {"here", "ici"}, {"often and with great joy", "souvent"}};
    std::string train, valid;
    size_t count = 0;
    for (const auto& subject : subjects) {
      for (const auto& verb : verbs) {
        for (const auto& end : ends) {
          const std::string line = std::string(subject[0]) + ' ' + verb[0] + ' ' + end[0] + ".\t" +
                                   subject[1] + ' ' + verb[1] + ' ' + end[1] + '.';
          ++count;
          (count % 6 == 0 ? valid : train) += line + (count % 12 == 0 ? "\tautrement\n" : "\n");
        }
      }
    }
    io::write_all(folder_ / "train.tsv", train);
    io::write_all(folder_ / "valid.tsv", valid);
  }
  Recipe recipe(const std::string& model, const std::vector<std::string>& settings = {}) const {
    io::write_all(folder_ / "recipe.toml", std::string(R"(
kind = "translator"
[data]
train = "train.tsv"
valid = "valid.tsv"
vocabulary = {size = 90}
max_length = 40
)") + model + R"(
[train]
steps = 12
batch_tokens = 200
optimizer = "adam"
rate = 5e-3
warmup = 3
schedule = "constant"
label_smoothing = 0.1
smoothing = "annotated"
validate_every = 4
score_every = 8
save_every = 3
)");
    return read_recipe(folder_ / "recipe.toml", settings);
  }
  static const TranslatorRecipe& of(const Recipe& recipe) { return std::get<TranslatorRecipe>(recipe.task); }
  static std::string bytes(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  io::TemporaryFolder folder_;
};

TEST_F(Translate, LearnsAndLeavesAModelThatOthersRead) {
  for (const char* model : {kTransformer, kRnn}) {
    SCOPED_TRACE(model);
    const Recipe how = recipe(model, {"train.steps=200", "train.score_every=0", "train.validate_every=50"});
    const auto folder = folder_ / ("run" + std::to_string(model == kRnn));
    const auto task = make_task(how, folder);
    double first = 0, last = 0;
    std::optional<Validation> found;
    Listener listener;
    listener.step = [&](const StepReport& report) { (report.step == 1 ? first : last) = report.loss; };
    listener.validation = [&](int64_t, const Validation& validation, bool) { found = validation; };
    EXPECT_EQ(train(*task, how, folder, listener).ending, Ending::finished);
    EXPECT_GT(first, 3);
    EXPECT_LT(last, 0.5);
    ASSERT_TRUE(found && found->bleu);
    EXPECT_GT(*found->bleu, 15);  // untrained: 0

    model::LoadedTranslator loaded = model::load_translator(folder.string());
    const auto texts = read_parallel_text(folder_ / "valid.tsv", false);
    const TranslationReport report = evaluate(loaded, texts);
    EXPECT_EQ(report.all.texts, int64_t(texts.size()));
    EXPECT_EQ(report.all.tokens, found->tokens);
    // The folder holds the best model, which the last one may be.
    if (train(*task, how, folder).best_step == 200) {
      EXPECT_NEAR(report.all.loss, found->loss, 1e-5);
      EXPECT_NEAR(report.all.bleu, *found->bleu, 1e-9);
      EXPECT_NEAR(report.all.chrf, *found->chrf, 1e-9);
    }
    int64_t counted = 0;
    for (const auto& bucket : report.by_length) counted += bucket.quality.texts;
    EXPECT_EQ(counted, report.all.texts);
  }
}

TEST_F(Translate, OneThatWasStoppedGoesOnWithTheSameBits) {
  for (const char* model : {kTransformer, kRnn}) {
    const std::string name = model == kRnn ? "rnn" : "transformer";
    const Recipe how = recipe(model);
    train(*make_task(how, folder_ / name), how, folder_ / name);
    for (const int64_t stop_after : {1, 4, 7}) {
      SCOPED_TRACE(name + std::to_string(stop_after));
      const auto folder = folder_ / (name + std::to_string(stop_after));
      int64_t done = 0;
      Listener listener;
      listener.step = [&](const StepReport& report) { done = report.step; };
      listener.stop = [&] { return done == stop_after; };
      EXPECT_EQ(train(*make_task(how, folder), how, folder, listener).ending, Ending::stopped);
      EXPECT_EQ(train(*make_task(how, folder), how, folder).ending, Ending::finished);
      for (const char* file :
           {"checkpoint-000012.safetensors", "model.safetensors", "tokenizer.json", "validation.csv"}) {
        EXPECT_EQ(bytes(folder / file), bytes(folder_ / name / file)) << file;
        EXPECT_FALSE(bytes(folder / file).empty()) << file;
      }
    }
  }
}

TEST_F(Translate, TheLossIsAMeanOverTokensWithoutPadding) {
  const Recipe how = recipe(kTransformer, {"model.dropout=0", "train.label_smoothing=0"});
  Translation task(of(how), how.train, folder_ / "run");
  const at::Tensor whole = task.loss(0);
  const PairBatch batch = task.batches().at(0);
  ASSERT_LT(batch.learned.numel(), batch.next.numel()) << "a batch with padding is wanted";
  double sum = 0;
  for (int64_t row = 0; row < batch.source.size(0); ++row) {
    const at::Tensor next = batch.next[row].masked_select(batch.next[row] != text::kPadId);
    const int64_t length =
        batch.source_lengths.defined() ? batch.source_lengths[row].item<int64_t>() : batch.source.size(1);
    layer::Context context;
    const at::Tensor hidden =
        task.model().hidden({.ids = batch.source.narrow(0, row, 1).narrow(1, 0, length), .lengths = {}},
                            batch.target.narrow(0, row, 1).narrow(1, 0, next.numel()), context);
    const at::Tensor log_p = task.model().logits(hidden)[0].log_softmax(1).to(at::kDouble);
    sum -= log_p.gather(1, next.unsqueeze(1)).sum().item<double>();
  }
  EXPECT_NEAR(whole.item<double>(), sum / double(batch.learned.numel()), 1e-5);
  EXPECT_EQ(task.tokens(0), batch.learned.numel());
}

TEST_F(Translate, DropoutIsAFunctionOfThePass) {
  const Recipe how = recipe(kTransformer, {"model.dropout=0.3"});
  Translation task(of(how), how.train, folder_ / "run");
  const auto pass = [&](int64_t number) { return task.loss(number).item<double>(); };
  const double first = pass(3);
  EXPECT_EQ(pass(3), first);
  const int64_t again = 3 + task.batches().per_pass();
  if (task.batches().numbers(again) == task.batches().numbers(3)) {
    EXPECT_NE(pass(again), first);
  }
  const Recipe other = recipe(kTransformer, {"model.dropout=0.3", "model.attention_dropout=0.1"});
  EXPECT_NE(Translation(of(other), other.train, folder_ / "run").loss(3).item<double>(), first);
}

// Layers of the decoder share the encoder's states, whose gradient is summed up in another order.
TEST_F(Translate, CheckpointedLayersGiveTheSameGradients) {
  std::vector<at::Tensor> first;
  for (const char* checkpoint : {"false", "true"}) {
    const Recipe how = recipe(kTransformer, {"model.dropout=0.3", "model.layers=2",
                                             std::string("train.checkpoint_layers=") + checkpoint});
    Translation task(of(how), how.train, folder_ / "run");
    const at::Tensor loss = task.loss(3);
    loss.backward();
    std::vector<at::Tensor> got = {loss.detach()};
    for (const auto& named : task.parameters()) got.push_back(named.value.grad().clone());
    if (first.empty()) first = got;
    ASSERT_EQ(got.size(), first.size());
    EXPECT_EQ(got[0].item<double>(), first[0].item<double>());
    for (size_t i = 1; i < got.size(); ++i) {
      EXPECT_LE((got[i] - first[i]).abs().max().item<double>(),
                1e-5 * first[i].abs().max().item<double>() + 1e-8)
          << task.parameters()[i - 1].name;
    }
  }
  EXPECT_THROW(recipe(kRnn, {"train.checkpoint_layers=true"}), std::invalid_argument);
}

TEST_F(Translate, ProductsInBf16StayNearF32) {
  std::vector<double> losses;
  for (const char* precision : {"f32", "bf16"}) {
    const Recipe how = recipe(kTransformer, {"train.steps=25", std::string("train.precision=") + precision});
    Listener listener;
    listener.step = [&](const StepReport& report) {
      if (report.step == report.steps) losses.push_back(report.loss);
    };
    const auto folder = folder_ / precision;
    train(*make_task(how, folder), how, folder, listener);
    // Others read what it saves, in float32.
    EXPECT_NO_THROW(model::load_translator(folder.string()));
  }
  ASSERT_EQ(losses.size(), 2U);
  EXPECT_NE(losses[1], losses[0]);
  EXPECT_NEAR(losses[1], losses[0], 0.05 * losses[0]);
  EXPECT_THROW(recipe(kRnn, {"train.precision=bf16"}), std::invalid_argument);
}

TEST_F(Translate, WhatIsBestIsDecidedByTheMetricAskedFor) {
  const Recipe how = recipe(kTransformer, {"train.best=bleu", "train.steps=16"});
  std::vector<std::pair<int64_t, bool>> seen;  // the step, whether it was scored
  std::vector<int64_t> best_at;
  Listener listener;
  listener.validation = [&](int64_t step, const Validation& validation, bool best) {
    seen.emplace_back(step, validation.bleu.has_value());
    if (best) best_at.push_back(step);
  };
  const Outcome outcome = train(*make_task(how, folder_ / "run"), how, folder_ / "run", listener);
  EXPECT_EQ(seen, (std::vector<std::pair<int64_t, bool>>{{4, false}, {8, true}, {12, false}, {16, true}}));
  for (const int64_t step : best_at) EXPECT_EQ(step % 8, 0);
  EXPECT_TRUE(outcome.best.has_value());
  EXPECT_EQ(outcome.best_step % 8, 0);
}

TEST_F(Translate, TheVocabularyIsOfBothSidesAndIsKept) {
  const Recipe how = recipe(kTransformer);
  const TranslationTexts texts = read_texts(of(how).data, folder_ / "run");
  EXPECT_EQ(bytes(folder_ / "run/tokenizer.json"), texts.tokenizer_json);
  const auto task = make_task(how, folder_ / "run");
  const auto& tokenizer = static_cast<Translation&>(*task).tokenizer();
  for (const char* text : {"you read here.", "tu lis ici."})
    EXPECT_EQ(tokenizer.encode(text, {.add_special = false}).unknown, 0u);
  // Before the first checkpoint a vocabulary of another recipe may lie there.
  io::write_all(folder_ / "run/tokenizer.json", "{}");
  EXPECT_EQ(read_texts(of(how).data, folder_ / "run").tokenizer_json, texts.tokenizer_json);
}

TEST_F(Translate, TheOtherDirectionIsASwitch) {
  const Recipe how = recipe(kTransformer, {"data.swap=true"});
  const TranslationTexts texts = read_texts(of(how).data, folder_ / "run");
  EXPECT_EQ(texts.train[0].source, "je mange maintenant.");
  EXPECT_EQ(texts.train[0].references, std::vector<std::string>{"I eat now."});
}

TEST_F(Translate, AGeneratedTaskIsMeasuredByExactAnswers) {
  io::write_all(folder_ / "copy.toml", std::string(R"(
kind = "translator"
[data]
task = "copy"
symbols = 5
length = 4
texts = 2000
valid_texts = 50
)") + kTransformer + R"(
[train]
steps = 350
batch_tokens = 320
optimizer = "adam"
schedule = "constant"
rate = 5e-3
warmup = 20
validate_every = 175
)");
  const Recipe how = read_recipe(folder_ / "copy.toml", {"model.dropout=0"});
  EXPECT_EQ(how.train.best, Metric::accuracy);
  std::vector<double> accuracy;
  Listener listener;
  listener.validation = [&](int64_t, const Validation& validation, bool) {
    EXPECT_FALSE(validation.bleu);
    accuracy.push_back(validation.accuracy.value_or(-1));
  };
  train(*make_task(how, folder_ / "copy"), how, folder_ / "copy", listener);
  EXPECT_GE(accuracy.back(), 0.9);
}

TEST_F(Translate, DamagedDataAreNamed) {
  io::write_all(folder_ / "train.tsv", "one\tun\ntwo\n");
  const Recipe how = recipe(kTransformer);
  try {
    make_task(how, folder_ / "run");
    FAIL();
  } catch (const io::Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("train.tsv, line 2"));
  }
}

}  // namespace
}  // namespace regard::train
