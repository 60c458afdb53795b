#include "regard/train/smoothed_loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace regard::train {
namespace {

// The distribution that a loss compares with: softmax minus the gradient of the logits.
std::vector<double> target_of(Smoothing smoothing, double share, int64_t right) {
  const at::Tensor logits =
      at::tensor({0.3, -0.2, 0.7, 0.1, -0.5}, at::kDouble).view({1, 5}).requires_grad_(true);
  smoothed_loss(logits, at::full({1}, right, at::kLong), share, smoothing, 0).backward();
  const at::Tensor target = logits.detach().softmax(1) - logits.grad();
  return {target.const_data_ptr<double>(), target.const_data_ptr<double>() + 5};
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
}

// "The Annotated Transformer": 5 classes, padding 0, smoothing 0.4.
TEST(SmoothedLoss, AnnotatedSpreadsOverAllButTheRightClassAndPadding) {
  expect_near(target_of(Smoothing::annotated, 0.4, 2), {0, 0.4 / 3, 0.6, 0.4 / 3, 0.4 / 3});
}

TEST(SmoothedLoss, TorchSpreadsOverAllClasses) {
  expect_near(target_of(Smoothing::torch, 0.4, 2), {0.08, 0.08, 0.68, 0.08, 0.08});
}

TEST(SmoothedLoss, WithoutAShareBothAreTheCrossEntropy) {
  expect_near(target_of(Smoothing::annotated, 0, 3), {0, 0, 0, 1, 0});
  expect_near(target_of(Smoothing::torch, 0, 3), {0, 0, 0, 1, 0});
  const at::Tensor logits = at::zeros({2, 4}, at::kDouble);
  EXPECT_NEAR(smoothed_loss(logits, at::tensor({1, 2}, at::kLong), 0, Smoothing::annotated, 0).item<double>(),
              std::log(4.0), 1e-12);
}

TEST(SmoothedLoss, AnnotatedIsADivergence) {
  const at::Tensor target = at::tensor({1e-30, 0.4 / 3, 0.6, 0.4 / 3, 0.4 / 3}, at::kDouble);
  const at::Tensor targets = at::full({1}, 2, at::kLong);
  const auto loss = [&](const at::Tensor& logits) {
    return smoothed_loss(logits.view({1, 5}), targets, 0.4, Smoothing::annotated, 0).item<double>();
  };
  EXPECT_NEAR(loss(target.log()), 0, 1e-12);
  // By the definition, term by term.
  const at::Tensor logits = at::tensor({0.3, -0.2, 0.7, 0.1, -0.5}, at::kDouble);
  const at::Tensor log_p = logits.log_softmax(0);
  double divergence = 0;
  for (int64_t i = 1; i < 5; ++i) {
    const auto t = target[i].item<double>();
    divergence += t * (std::log(t) - log_p[i].item<double>());
  }
  EXPECT_NEAR(loss(logits), divergence, 1e-12);
}

TEST(SmoothedLoss, IsAMeanOfRows) {
  const at::Tensor logits = at::linspace(-1, 1, 15, at::kDouble).view({3, 5});
  const at::Tensor targets = at::tensor({1, 4, 2}, at::kLong);
  for (const Smoothing smoothing : {Smoothing::torch, Smoothing::annotated}) {
    double sum = 0;
    for (int64_t row = 0; row < 3; ++row)
      sum += smoothed_loss(logits.narrow(0, row, 1), targets.narrow(0, row, 1), 0.1, smoothing, 0)
                 .item<double>();
    EXPECT_NEAR(smoothed_loss(logits, targets, 0.1, smoothing, 0).item<double>(), sum / 3, 1e-12);
  }
}

}  // namespace
}  // namespace regard::train
