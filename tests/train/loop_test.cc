// A small language model trained for a few steps: it learns, it goes on with the same bits, and it says what
// went wrong.
#include "regard/train/loop.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <stdexcept>

#include "regard/io/error.h"
#include "regard/model/load.h"
#include "regard/train/checkpoint.h"
#include "regard/train/language_model.h"
#include "tests/io/files.h"

namespace regard::train {
namespace {

using ::testing::HasSubstr;

class Loop : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the quick brown fox " + std::to_string(i % 7) + " jumps; ";
    io::write_all(folder_ / "text.txt", text);
    io::write_all(folder_ / "recipe.toml", R"(
[data]
train = "text.txt"
valid = "text.txt"
[model]
layers = 2
width = 16
heads = 2
kv_heads = 1
[train]
steps = 12
length = 24
batch = 4
accumulate = 2
rate = 1e-2
warmup = 3
validate_every = 4
validation_pieces = 8
save_every = 3
weight_decay = 0.1
)");
  }
  Recipe recipe(const std::vector<std::string>& settings = {}) const {
    return read_recipe(folder_ / "recipe.toml", settings);
  }
  static std::string bytes(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  io::TemporaryFolder folder_;
};

TEST_F(Loop, LearnsAndLeavesAModelThatOthersRead) {
  const Recipe how = recipe({"train.steps=60"});
  LanguageModel task(how);
  double first = 0;
  double last = 0;
  Listener listener;
  listener.step = [&](const StepReport& report) { (report.step == 1 ? first : last) = report.loss; };
  const Outcome outcome = train(task, how, folder_ / "run", listener);
  EXPECT_EQ(outcome.ending, Ending::finished);
  EXPECT_NEAR(first, std::log(256.0), 0.3);  // nothing known: all bytes alike
  EXPECT_LT(last, 2.6);
  const model::Loaded loaded = model::load((folder_ / "run").string());
  EXPECT_EQ(loaded.model->config().kv_heads, 1);
  EXPECT_EQ(loaded.tokenizer->encode("fox").ids, (std::vector<int64_t>{'f', 'o', 'x'}));
}

TEST_F(Loop, OneThatWasStoppedGoesOnWithTheSameBits) {
  const Recipe how = recipe();
  LanguageModel whole(how);
  train(whole, how, folder_ / "whole");
  for (const int64_t stop_after : {1, 3, 4, 7, 11}) {
    SCOPED_TRACE(stop_after);
    const auto folder = folder_ / ("stopped" + std::to_string(stop_after));
    int64_t done = 0;
    Listener listener;
    listener.step = [&](const StepReport& report) { done = report.step; };
    listener.stop = [&] { return done == stop_after; };
    {
      LanguageModel task(how);
      EXPECT_EQ(train(task, how, folder, listener).ending, Ending::stopped);
    }
    LanguageModel task(how);
    EXPECT_EQ(train(task, how, folder).ending, Ending::finished);
    for (const char* file :
         {"checkpoint-000012.safetensors", "model.safetensors", "validation.csv", "heads.csv"}) {
      EXPECT_EQ(bytes(folder / file), bytes(folder_ / "whole" / file)) << file;
    }
    // Every step stands in the log once.
    std::ifstream log(folder / "log.csv");
    std::string line;
    std::getline(log, line);
    for (int64_t step = 1; step <= 12; ++step) {
      ASSERT_TRUE(std::getline(log, line));
      EXPECT_EQ(line.substr(0, line.find(',')), std::to_string(step));
    }
    EXPECT_FALSE(std::getline(log, line));
  }
}

TEST_F(Loop, KeepsTheNewestCheckpointsAlone) {
  const Recipe how = recipe({"train.keep=2"});
  LanguageModel task(how);
  train(task, how, folder_ / "run");
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "run")) {
    count += entry.path().filename().string().starts_with("checkpoint-") ? 1 : 0;
  }
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(newest_checkpoint(folder_ / "run"), checkpoint_path(folder_ / "run", 12));
}

TEST_F(Loop, AnotherRecipeIsNotMixedIn) {
  const Recipe how = recipe({"train.steps=3"});
  LanguageModel task(how);
  train(task, how, folder_ / "run");
  for (const char* setting : {"train.weight_decay=0.5", "train.schedule=linear", "model.dropout=0.1"}) {
    const Recipe other = recipe({setting});
    LanguageModel next(other);
    try {
      train(next, other, folder_ / "run");
      FAIL() << setting;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("another recipe"));
    }
  }
  const Recipe longer = recipe({"train.steps=5", "train.save_every=2", "train.keep=5", "train.patience=9",
                                "train.rate=0.5", "train.warmup=0", "train.clip=0.1"});
  LanguageModel same(longer);
  EXPECT_EQ(train(same, longer, folder_ / "run").step, 5);
}

TEST_F(Loop, DamagedCheckpointsAreRefusedByName) {
  const Recipe how = recipe({"train.steps=3"});
  LanguageModel task(how);
  train(task, how, folder_ / "run");
  const auto path = checkpoint_path(folder_ / "run", 3);
  const std::string good = bytes(path);
  const auto refusal = [&](const std::string& content) -> std::string {
    io::write_all(path, content);
    try {
      LanguageModel again(how);
      train(again, how, folder_ / "run");
    } catch (const io::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(good.substr(0, good.size() - 1)), HasSubstr("checkpoint-000003.safetensors"));
  EXPECT_THAT(refusal(good.substr(0, 5)), HasSubstr("checkpoint-000003.safetensors"));
  EXPECT_THAT(refusal(bytes(folder_ / "run/model.safetensors")), HasSubstr("no checkpoint of a training"));
}

TEST_F(Loop, DamagedNumbersOfACheckpointAreRefused) {
  const Recipe how = recipe({"train.steps=4"});
  LanguageModel task(how);
  train(task, how, folder_ / "run");
  const auto path = checkpoint_path(folder_ / "run", 4);
  const Checkpoint good = read_checkpoint(path);
  for (const char* key : {"since_best", "best", "best_step", "best_loss"}) {
    for (const char* value : {"", "x", "1x", " 1", "-1-", "99999999999999999999"}) {
      const bool whole = std::string(key) == "since_best" || std::string(key) == "best_step";
      if (!whole && std::string(value).starts_with("9")) continue;  // a number
      Checkpoint damaged = good;
      damaged.state[key] = value;
      write_checkpoint(path, damaged);
      try {
        LanguageModel again(how);
        train(again, how, folder_ / "run");
        FAIL() << key << " " << value;
      } catch (const io::Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("checkpoint-000004.safetensors"));
        EXPECT_THAT(error.what(), HasSubstr(key));
      }
    }
  }
  Checkpoint damaged = good;
  damaged.state.erase("since_best");
  write_checkpoint(path, damaged);
  LanguageModel again(how);
  EXPECT_THROW(train(again, how, folder_ / "run"), io::Error);
}

TEST(Checkpoints, NumbersComeBackWithTheirBits) {
  Checkpoint checkpoint;
  for (const double value : {0.0, 1.0 / 3, -2.5e-310, 6.02e23, 1e308}) {
    checkpoint.state["x"] = exact(value);
    EXPECT_EQ(number(checkpoint, "x", "file"), value);
  }
}

TEST_F(Loop, PatienceEndsWhatDoesNotImprove) {
  const Recipe how =
      recipe({"train.steps=100", "train.rate=0", "train.validate_every=2", "train.patience=3"});
  LanguageModel task(how);
  const Outcome outcome = train(task, how, folder_ / "run");
  EXPECT_EQ(outcome.ending, Ending::out_of_patience);
  EXPECT_EQ(outcome.best_step, 2);
  EXPECT_EQ(outcome.step, 8);
}

TEST_F(Loop, OfEquallyGoodValidationsTheOneOfTheLowerLossIsTheBest) {
  io::write_all(folder_ / "copy.toml", R"(
[data]
task = "copy"
length = 8
texts = 200
valid_texts = 5
[model]
layers = 1
width = 16
heads = 2
[train]
steps = 6
length = 32
batch = 4
rate = 1e-3
schedule = "constant"
validate_every = 2
)");
  const Recipe how = read_recipe(folder_ / "copy.toml");
  LanguageModel task(how);
  const Outcome outcome = train(task, how, folder_ / "copy");
  EXPECT_EQ(outcome.best, 0.0);  // no text is right yet
  EXPECT_EQ(outcome.best_step, 6);
}

}  // namespace
}  // namespace regard::train
