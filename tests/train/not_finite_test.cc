// A loss or a gradient that is not finite: the training stops, says where, and can go on from what it keeps.
#include "regard/train/not_finite.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "regard/train/checkpoint.h"
#include "regard/train/loop.h"
#include "regard/train/make_task.h"
#include "tests/train/small_trainings.h"

namespace regard::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Another task, whose loss has one more term in one pass: 0, with a gradient that is no number.
class BrokenGradient final : public Task {
 public:
  BrokenGradient(Task& task, int64_t pass, std::string parameter)
      : task_(task), pass_(pass), parameter_(std::move(parameter)) {}
  const std::vector<Parameters::Named>& parameters() const override { return task_.parameters(); }
  int64_t tokens(int64_t pass) override { return task_.tokens(pass); }
  std::optional<Validation> validate(int64_t step) override { return task_.validate(step); }
  void save(const std::filesystem::path& folder) const override { task_.save(folder); }
  at::Tensor loss(int64_t pass) override {
    at::Tensor loss = task_.loss(pass);
    if (pass != pass_) return loss;
    for (const auto& named : parameters())
      if (named.name == parameter_) loss = loss + at::sqrt(0 * named.value.sum());
    return loss;
  }

 private:
  Task& task_;
  int64_t pass_;
  std::string parameter_;
};

class NotFinite : public ::testing::TestWithParam<Small> {
 protected:
  Recipe recipe(const std::vector<std::string>& settings = {}) const {
    return small_recipe(folder_, GetParam(), settings);
  }
  std::unique_ptr<Task> task(const Recipe& recipe) const { return make_task(recipe, folder_ / "run"); }
  // What stops it.
  std::string refusal(Task& task, const Recipe& recipe) const {
    try {
      train(task, recipe, folder_ / "run");
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "nothing";
  }
  static void fill(Task& task, const std::string& name, double value) {
    const at::NoGradGuard no_grad;
    for (const auto& named : task.parameters()) {
      if (named.name.find(name) == std::string::npos) continue;
      named.value.fill_(value);
      return;
    }
    FAIL() << name;
  }
  template <class Value>
  static Value of(Value language_model, Value transformer, Value rnn) {
    return GetParam() == Small::language_model ? language_model
           : GetParam() == Small::transformer  ? transformer
                                               : rnn;
  }

  io::TemporaryFolder folder_;
};

TEST_P(NotFinite, AParameterIsNamed) {
  const char* name = of("model.layers.1.mlp.gate_proj+up_proj", "decoder.layers.1.encoder_attn.v_proj.weight",
                        "attention.query.weight");
  const Recipe how = recipe();
  const auto broken = task(how);
  fill(*broken, of("layers.1.mlp.up_proj.weight", name, name), std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(refusal(*broken, how), AllOf(StartsWith("step 1, pass 0: not a number, first in the parameter"),
                                           HasSubstr(name), HasSubstr("no checkpoint was made yet")));
}

TEST_P(NotFinite, TheLayerWhoseNumbersOverflowIsNamed) {
  for (const char* precision : {"f32", "bf16"}) {
    if (GetParam() == Small::rnn && std::string(precision) == "bf16") continue;
    const Recipe how = recipe({std::string("train.precision=") + precision});
    const auto broken = task(how);
    fill(*broken,
         of("layers.1.mlp.up_proj.weight", "decoder.layers.0.encoder_attn.q_proj.weight", "embedding.weight"),
         3e38);
    EXPECT_THAT(refusal(*broken, how),
                HasSubstr(of("first in what model.layers.1.mlp.gate_proj+up_proj makes",
                             "first in what model.decoder.layers.0.encoder_attn.q_proj makes",
                             "first in what encoder.layers.0.forward.input makes")))
        << precision;
  }
}

TEST_P(NotFinite, TheGradientsOfAPassAreNamed) {
  const char* name = of("model.norm.weight", "model.encoder.layers.1.fc1.bias", "decoder.initial.0.bias");
  const Recipe how = recipe();
  const auto whole = task(how);
  BrokenGradient broken(*whole, 7, name);
  EXPECT_THAT(refusal(broken, how),
              AllOf(StartsWith(std::string("step 4, pass 7: not a number, first in the gradient of ") + name),
                    HasSubstr("checkpoint-000002.safetensors is kept")));
}

// Each step makes the matrices nine times as large.
TEST_P(NotFinite, WhatIsKeptLeadsPastIt) {
  const std::vector<std::string> settings = {"train.schedule=constant", "train.warmup=0",
                                             "train.weight_decay=10", "train.steps=30"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), settings.begin(), settings.end());
    return recipe(more);
  };
  const Recipe wild = with({"train.rate=1"});
  const std::string what = refusal(*task(wild), wild);
  EXPECT_THAT(what, AllOf(HasSubstr(": not a number, first in "), HasSubstr(" is kept"),
                          Not(HasSubstr("the loss itself"))));
  const auto kept = newest_checkpoint(folder_ / "run");
  ASSERT_TRUE(kept) << what;
  const int64_t step = read_checkpoint(*kept).step;
  EXPECT_THAT(what, StartsWith("step " + std::to_string(step + 2) + ", "));
  const Recipe tame = with({"train.rate=1e-9", "train.clip=0.5"});
  int64_t done = 0;
  Listener listener;
  listener.step = [&](const StepReport& report) { done = report.step; };
  listener.stop = [&] { return done == step + 2; };
  EXPECT_EQ(train(*task(tame), tame, folder_ / "run", listener).step, step + 2);
}

INSTANTIATE_TEST_SUITE_P(All, NotFinite,
                         ::testing::Values(Small::language_model, Small::transformer, Small::rnn),
                         [](const auto& info) { return name_of(info.param); });

// Twice 2e38 is too much for a number: what is left where the other half is dropped.
TEST(NotFiniteState, IsLookedForWithTheDropoutOfThePass) {
  const io::TemporaryFolder folder;
  for (const char* dropout : {"0", "0.5"}) {
    const Recipe how = small_recipe(folder, Small::language_model,
                                    {"model.tied=false", std::string("model.dropout=") + dropout});
    const auto task = make_task(how, folder / "run");
    const at::NoGradGuard no_grad;
    for (const auto& named : task->parameters())
      if (named.name == "model.embed_tokens.weight") named.value.fill_(2e38);
    const at::AutoGradMode grad(true);
    const std::string found = first_not_finite(*task, 0);
    if (std::string(dropout) == "0") {
      EXPECT_THAT(found, Not(HasSubstr("what "))) << found;
    } else {
      EXPECT_EQ(found, "what model.layers.0.self_attn.q_proj+k_proj+v_proj reads");
    }
  }
}

// The row of a letter that no text has changes no loss.
TEST(NotFiniteState, IsNeverSaved) {
  const io::TemporaryFolder folder;
  const Recipe how = small_recipe(folder, Small::language_model, {"model.tied=false", "train.save_every=3"});
  const auto task = make_task(how, folder / "run");
  for (const auto& named : task->parameters()) {
    const at::NoGradGuard no_grad;
    if (named.name == "model.embed_tokens.weight") named.value[1].fill_(NAN);
  }
  try {
    train(*task, how, folder / "run");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(),
                StartsWith("after step 3: not a number, in the parameter model.embed_tokens.weight"));
  }
  EXPECT_FALSE(newest_checkpoint(folder / "run"));
}

}  // namespace
}  // namespace regard::train
