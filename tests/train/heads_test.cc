// What a training says of its heads, and the term that keeps them apart, for every kind of model.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <stdexcept>

#include "regard/train/loop.h"
#include "regard/train/make_task.h"
#include "tests/train/small_trainings.h"

namespace regard::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WatchedHeads : public ::testing::Test {
 protected:
  Recipe recipe(Small kind, const std::vector<std::string>& settings = {}) const {
    return small_recipe(folder_, kind, settings);
  }
  std::unique_ptr<Task> task(const Recipe& recipe) const { return make_task(recipe, folder_ / "run"); }
  // Begins with zeros in all parameters of such names.
  static void clear(Task& task, const std::string& part) {
    const at::NoGradGuard no_grad;
    for (const auto& named : task.parameters())
      if (named.name.find(part) != std::string::npos) named.value.zero_();
  }
  std::vector<std::string> alarms(Task& task, const Recipe& recipe) const {
    std::vector<std::string> out;
    Listener listener;
    listener.alarm = [&](int64_t, const std::string& what) { out.push_back(what); };
    train(task, recipe, folder_ / "run", listener);
    return out;
  }

  io::TemporaryFolder folder_;
};

TEST_F(WatchedHeads, OfATranslatorCarryTheNamesOfTheirLayers) {
  const Recipe how = recipe(Small::transformer);
  train(*task(how), how, folder_ / "run");
  std::istringstream file(io::read_all(folder_ / "run/heads.csv"));
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "step,layer,head,entropy,share,spread,contribution");
  std::set<std::string> seen;
  int lines = 0;
  for (; std::getline(file, line); ++lines) {
    const size_t layer = line.find(',') + 1;
    seen.insert(line.substr(layer, line.find(',', layer) - layer));
  }
  for (const auto& head : task(how)->heads().states) {
    EXPECT_GT(head.entropy, 0) << head.layer;
    EXPECT_LE(head.share, 1 + 1e-6) << head.layer;
    EXPECT_GT(head.contribution, 0) << head.layer;
  }
  EXPECT_EQ(lines, 24);  // two validations, six layers, two heads
  EXPECT_THAT(seen, ElementsAre("cross 0", "cross 1", "decoder 0", "decoder 1", "encoder 0", "encoder 1"));
  EXPECT_THAT(io::read_all(folder_ / "run/events.out.tfevents.0.regard"),
              AllOf(HasSubstr("entropy/encoder0/head1"), HasSubstr("entropy_share/cross1/head0")));
}

TEST_F(WatchedHeads, OfATranslatorThatAreUniformAreToldWithTheCause) {
  const Recipe small = recipe(Small::transformer, {"model.initialisation=normal", "model.deviation=0.0005",
                                                   "train.rate=1e-6", "train.alarm_after=3"});
  EXPECT_THAT(alarms(*task(small), small),
              ElementsAre(AllOf(HasSubstr("12 of 12 heads look at all keys alike"),
                                HasSubstr("encoder 0 head 0"), HasSubstr("the likely cause is the start"))));
}

TEST_F(WatchedHeads, PostNormWithoutWarmUpIsACause) {
  const Recipe how = recipe(Small::transformer, {"model.norm_place=post", "train.warmup=0", "train.rate=1e-9",
                                                 "train.schedule=constant", "train.alarm_after=3"});
  const auto begun = task(how);
  clear(*begun, "encoder_attn.q_proj");
  EXPECT_THAT(alarms(*begun, how), ElementsAre(AllOf(HasSubstr("4 of 12 heads look at all keys alike"),
                                                     HasSubstr("cross 1 head 1"),
                                                     HasSubstr("a norm after each sum without a warm-up"))));
}

TEST_F(WatchedHeads, AnRnnHasOne) {
  for (const char* attention : {"additive", "general"}) {
    const Recipe how = recipe(Small::rnn, {std::string("model.attention=") + attention});
    const auto begun = task(how);
    const Heads heads = begun->heads();
    ASSERT_EQ(heads.states.size(), 1u);
    EXPECT_EQ(heads.states[0].layer, "cross 0");
    EXPECT_GT(heads.states[0].share, 0.5);
    EXPECT_LT(heads.states[0].share, 1);
    EXPECT_GT(heads.states[0].spread, 0);
    clear(*begun, "attention.key");
    EXPECT_NEAR(begun->heads().states[0].share, 1, 1e-5);
    EXPECT_NEAR(begun->heads().states[0].spread, 0, 1e-5);
  }
  EXPECT_TRUE(task(recipe(Small::rnn, {"model.attention=none"}))->heads().states.empty());
}

// What lambda = 1 adds to the loss, with its sign turned back: D of the parameters of `trained`.
double diversity_of(Task& trained, Task& with, Task& without) {
  for (Task* other : {&with, &without}) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < trained.parameters().size(); ++i)
      other->parameters()[i].value.copy_(trained.parameters()[i].value);
  }
  return without.loss(0).item<double>() - with.loss(0).item<double>();
}

TEST_F(WatchedHeads, MinusLambdaKeepsThoseOfATranslatorApart) {
  const auto with = task(recipe(Small::transformer, {"model.dropout=0", "train.diversity=1"}));
  const auto without = task(recipe(Small::transformer, {"model.dropout=0"}));
  const auto after = [&](const char* lambda) {
    const Recipe how =
        recipe(Small::transformer, {"model.dropout=0", "train.steps=20", "train.rate=1e-2",
                                    "train.save_every=100", std::string("train.diversity=") + lambda});
    const auto folder = folder_ / ("run" + std::string(lambda));
    const auto trained = make_task(how, folder);
    train(*trained, how, folder);
    return diversity_of(*trained, *with, *without);
  };
  EXPECT_GT(after("30"), 1.2 * after("-30"));
  // Heads that look at the source are among them.
  for (const char* part : {"encoder.layers.0.self_attn.q", "encoder.layers.1.self_attn.q",
                           "decoder.layers.0.self_attn.q", "decoder.layers.1.self_attn.q"})
    clear(*without, part);
  const double cross = diversity_of(*without, *with, *without);
  EXPECT_GT(cross, 1e-6);
  clear(*without, "encoder_attn.q");
  EXPECT_NEAR(diversity_of(*without, *with, *without), 0, 1e-9);
  EXPECT_THROW(recipe(Small::rnn, {"train.diversity=1"}), std::invalid_argument);
}

}  // namespace
}  // namespace regard::train
