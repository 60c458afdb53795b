// Small models and what is trained with them.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "regard/lab/experiment.h"
#include "regard/lab/small_model.h"
#include "regard/lab/tensors.h"

namespace regard::lab {
namespace {

TEST(LabSmallModel, TheSameSeedLearnsTheSameBits) {
  const auto trained = [] {
    SmallModel model({.heads = 4, .dropout = 0.1, .seed = 3});
    Reversals task(16, 16, 1, 0);
    SmallTraining training;
    training.steps = 5;
    train_small(
        model, [&] { return task.next(4); }, training);
    return model.named();
  };
  const auto one = trained();
  const auto two = trained();
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i].value, two[i].value)) << one[i].name;
}

TEST(LabSmallModel, MapsDoNotChangeTheLogitsAndSumToOne) {
  const SmallModel model({.heads = 2, .layers = 2});
  const Batch batch = Reversals(16, 16, 1, 0).next(3);
  std::vector<at::Tensor> maps;
  const at::Tensor with = model.forward(batch.ids, -1, &maps);
  EXPECT_LT(difference(with, model.forward(batch.ids)), 1e-4);
  ASSERT_EQ(maps.size(), 2u);
  EXPECT_LT(difference(maps[0].sum(-1), at::ones({3, 2, 16})), 1e-5);
  EXPECT_NEAR(entropy_share(at::full({1, 1, 4, 4}, 0.25)), 1, 1e-6);
  EXPECT_NEAR(entropy_share(at::eye(4).view({1, 1, 4, 4})), 0, 1e-6);
}

TEST(LabSmallModel, TextsAreReversedAndComeAgain) {
  Reversals task(5, 7, 1, 0);
  const Batch first = task.next(4000);
  EXPECT_TRUE(at::equal(first.ids.flip(1), first.targets.squeeze(-1)));
  EXPECT_EQ(first.ids.min().item<int64_t>(), 0);
  EXPECT_EQ(first.ids.max().item<int64_t>(), 6);
  EXPECT_TRUE(at::equal(task.next(100).ids, first.ids.narrow(0, 0, 100)));
}

TEST(LabSmallModel, LearnsToReverse) {
  SmallModel model({.feed_forward = false});
  Reversals task(16, 16, 1, 0);
  const Batch test = Reversals(16, 16, 1, 1).next(32);
  EXPECT_LT(accuracy(model, test), 0.2);
  SmallTraining training;
  training.steps = 150;
  train_small(
      model, [&] { return task.next(32); }, training);
  EXPECT_GT(accuracy(model, test), 0.95);
}

TEST(LabSmallModel, HeadsMustDivideTheWidth) {
  EXPECT_THROW(SmallModel({.heads = 5}), std::invalid_argument);
}

TEST(LabFrozen, ParametersChangeInTrainingAlone) {
  const Result result = run(experiment("frozen"), {.quick = true, .seeds = 1});
  ASSERT_EQ(result.findings.size(), 3u);
  EXPECT_EQ(result.findings[0].verdict, Verdict::confirmed) << result.findings[0].measured;
  EXPECT_EQ(result.findings[1].verdict, Verdict::confirmed) << result.findings[1].measured;
  EXPECT_EQ(result.findings[2].verdict, Verdict::refuted) << result.findings[2].measured;
  EXPECT_NE(result.findings[2].measured.find(": q, k, v, out "), std::string::npos);
}

TEST(LabDiversity, TheArticlesSignMakesHeadsAlike) {
  const Result result = run(experiment("diversity"), {.quick = true, .seeds = 2});
  ASSERT_EQ(result.findings.size(), 2u);
  EXPECT_EQ(result.findings[0].verdict, Verdict::refuted) << result.findings[0].measured;
  EXPECT_EQ(result.findings[1].verdict, Verdict::confirmed) << result.findings[1].measured;
}

}  // namespace
}  // namespace regard::lab
