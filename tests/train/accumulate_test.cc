// Passes that make one step are as one pass over all their texts.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "regard/train/loop.h"
#include "regard/train/make_task.h"
#include "regard/train/translation.h"
#include "tests/train/small_trainings.h"

namespace regard::train {
namespace {

struct Step {
  StepReport report;
  std::vector<at::Tensor> moved;  // parameters: of plain SGD the gradients, but for their sign
};

class Accumulate : public ::testing::TestWithParam<Small> {
 protected:
  Recipe recipe(std::vector<std::string> settings) const {
    settings.insert(settings.end(),
                    {"model.dropout=0", "train.steps=1", "train.optimizer=sgd", "train.rate=1",
                     "train.warmup=0", "train.clip=0", "train.schedule=constant"});
    return small_recipe(folder_, GetParam(), settings);
  }
  Step one_step(const std::vector<std::string>& settings) {
    const Recipe how = recipe(settings);
    const auto folder = folder_ / ("run" + std::to_string(runs_++));
    const auto task = make_task(how, folder);
    Step out;
    Listener listener;
    listener.step = [&](const StepReport& report) { out.report = report; };
    for (const auto& named : task->parameters()) out.moved.push_back(named.value.detach().clone());
    train(*task, how, folder, listener);
    for (size_t i = 0; i < out.moved.size(); ++i) out.moved[i] -= task->parameters()[i].value.detach();
    return out;
  }

  io::TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_P(Accumulate, ManyPassesAreAsOneLargerOne) {
  Step many, one;
  if (GetParam() == Small::language_model) {  // of documents some targets are none: passes differ in tokens
    const std::string documents = "data.documents=\"\\n\\n\"";
    many = one_step({documents, "train.batch=2", "train.accumulate=3"});
    one = one_step({documents, "train.batch=6", "train.accumulate=1"});
  } else {
    const Recipe how = recipe({"train.batch_tokens=100"});
    Translation task(std::get<TranslatorRecipe>(how.task), how.train, folder_ / "count");
    const int64_t passes = task.batches().per_pass();
    ASSERT_GT(passes, 3);
    ASSERT_NE(task.tokens(0), task.tokens(1));
    many = one_step({"train.batch_tokens=100", "train.accumulate=" + std::to_string(passes)});
    one = one_step({"train.batch_tokens=100000", "train.accumulate=1"});
  }
  EXPECT_EQ(many.report.tokens, one.report.tokens);
  EXPECT_NEAR(many.report.loss, one.report.loss, 1e-6 * one.report.loss);
  EXPECT_NEAR(many.report.gradient_norm, one.report.gradient_norm, 1e-5 * one.report.gradient_norm);
  for (size_t i = 0; i < one.moved.size(); ++i) {
    const double largest = one.moved[i].abs().max().item<double>();
    EXPECT_LE((many.moved[i] - one.moved[i]).abs().max().item<double>(), 1e-5 * largest + 1e-7) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Accumulate,
                         ::testing::Values(Small::language_model, Small::transformer, Small::rnn),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace regard::train
