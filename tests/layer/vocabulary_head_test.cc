// Softmaxes over token ids: the order of frequency is the head's own matter.
#include "regard/layer/vocabulary_head.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace regard::layer {
namespace {

using Kind = VocabularyHeadOptions::Kind;

VocabularyHeadOptions options(Kind kind) {
  // Ids in no order of frequency; two ties.
  return {.kind = kind, .width = 16, .counts = {3, 50, 0, 7, 100, 7, 20, 1, 9, 30}, .cutoffs = {3, 6}};
}

TEST(VocabularyHead, ProbabilitiesSumToOneAndAreThoseOfTheTargets) {
  at::manual_seed(1);
  for (const Kind kind : {Kind::adaptive, Kind::hierarchical}) {
    const VocabularyHead head(options(kind));
    for (at::Tensor& parameter : head.parameters()) {
      const at::NoGradGuard no_grad;
      parameter.normal_();
    }
    const at::Tensor x = at::randn({2, 10, 16});
    const at::Tensor all = head.log_prob(x);
    ASSERT_EQ(all.sizes(), (std::vector<int64_t>{2, 10, 10}));
    EXPECT_LE((all.exp().sum(-1) - 1).abs().max().item<float>(), 1e-5F);
    const at::Tensor target = at::arange(10, at::kLong);
    const at::Tensor of_targets = head.forward(x[1], target);
    EXPECT_LE((of_targets - all[1].gather(1, target.unsqueeze(1)).squeeze(1)).abs().max().item<float>(),
              1e-5F);
  }
}

// Frequent tokens are in the shortlist: a target among them leaves the tails without a gradient.
TEST(VocabularyHead, TheShortlistIsOfTheFrequentIds) {
  const VocabularyHead head(options(Kind::adaptive));
  const at::Tensor x = at::randn({3, 16});
  (-head.forward(x, at::tensor({4, 1, 9}, at::kLong)).sum()).backward();  // counts 100, 50, 30
  for (const auto& item : head.named_parameters()) {
    if (item.key().find("head") != std::string::npos) continue;
    const at::Tensor& grad = item.value().grad();
    EXPECT_FALSE(grad.defined() && grad.abs().sum().item<float>() > 0) << item.key();
  }
}

TEST(VocabularyHead, RefusesAVocabularyOfOne) {
  EXPECT_THROW(VocabularyHead({.kind = Kind::hierarchical, .width = 4, .counts = {5}, .cutoffs = {}}),
               std::invalid_argument);
}

}  // namespace
}  // namespace regard::layer
