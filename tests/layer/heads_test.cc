// Softmax heads: adaptive and hierarchical.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "regard/layer/adaptive_softmax.h"
#include "regard/layer/hierarchical_softmax.h"
#include "tests/layer/support.h"

namespace regard::layer {
namespace {

using testing::distance;
using testing::expect_gradients;
using testing::Golden;
using testing::set_parameter;

struct AdaptiveCase {
  AdaptiveSoftmaxOptions options;
  Golden golden;
  AdaptiveSoftmax head;

  AdaptiveCase(const std::string& name, const AdaptiveSoftmaxOptions& options)
      : options(options), golden("layers/" + name), head(options) {
    head.to(at::kDouble);
    set_parameter(head, "head", golden.f64("w.head.weight"));
    if (options.head_bias) set_parameter(head, "head_bias", golden.f64("w.head.bias"));
    for (const std::string i : {"0", "1"}) {
      set_parameter(head, "tail" + i + "_down", golden.f64("w.tail." + i + ".0.weight"));
      set_parameter(head, "tail" + i + "_up", golden.f64("w.tail." + i + ".1.weight"));
    }
  }
};

// torch's own layer, forward and gradients, in float64.
TEST(AdaptiveSoftmax, EqualsTorch) {
  const auto expect = [](AdaptiveCase c) {
    const at::Tensor x = c.golden.f64("in.x").requires_grad_();
    const at::Tensor target = c.golden.ids("in.target");
    const at::Tensor of_target = c.head.forward(x, target);
    const at::Tensor all = c.head.log_prob(x);
    EXPECT_LE(distance(of_target, c.golden.f64("out.target_logprob")), 1e-12);
    EXPECT_LE(distance(-of_target.mean(), c.golden.f64("out.loss")), 1e-12);
    EXPECT_LE(distance(all, c.golden.f64("out.log_prob")), 1e-12);
    EXPECT_TRUE(at::equal(c.head.predict(x), c.golden.ids("out.predict")));
    ((of_target * c.golden.f64("dout.target_logprob")).sum() + (all * c.golden.f64("dout.log_prob")).sum())
        .backward();
    EXPECT_LE(distance(x.grad(), c.golden.f64("gradin.x")), 1e-11);
    const auto parameters = c.head.named_parameters();
    EXPECT_LE(distance(parameters["head"].grad(), c.golden.f64("gradw.head.weight")), 1e-11);
    EXPECT_LE(distance(parameters["tail0_down"].grad(), c.golden.f64("gradw.tail.0.0.weight")), 1e-11);
    EXPECT_LE(distance(parameters["tail1_up"].grad(), c.golden.f64("gradw.tail.1.1.weight")), 1e-11);
  };
  expect({"adaptive_softmax_div2", {12, 20, {4, 10}, 2.0, true}});
  expect({"adaptive_softmax_div4", {16, 30, {6, 14}, 4.0, false}});
}

TEST(AdaptiveSoftmax, SumsToOneAndForwardIsItsEntry) {
  at::manual_seed(1);
  AdaptiveSoftmax head({8, 50, {5, 20}, 2.0, false});
  head.to(at::kDouble);
  const at::Tensor x = at::randn({30, 8}, at::kDouble);
  const at::Tensor target = at::randint(50, {30}, at::kLong);
  const at::Tensor all = head.log_prob(x);
  EXPECT_LE((all.exp().sum(1) - 1).abs().max().item<double>(), 1e-12);
  EXPECT_LE(distance(head.forward(x, target), all.gather(1, target.unsqueeze(1)).squeeze(1)), 1e-12);
  EXPECT_TRUE(at::equal(head.predict(x), all.argmax(1)));
}

TEST(AdaptiveSoftmax, GradientsEqualFiniteDifferences) {
  const testing::OneThread one_thread;
  at::manual_seed(2);
  AdaptiveSoftmax head({6, 12, {3, 7}, 2.0, true});
  head.to(at::kDouble);
  at::Tensor x = at::randn({5, 6}, at::kDouble);
  const at::Tensor target = at::tensor(std::vector<int64_t>{0, 4, 11, 2, 8});
  std::vector<at::Tensor> leaves = head.parameters();
  leaves.push_back(x);
  expect_gradients([&] { return head.forward(x, target).sum(); }, leaves);
}

TEST(AdaptiveSoftmax, RefusesWhatMeansNothing) {
  EXPECT_THROW(AdaptiveSoftmax({8, 10, {}, 4.0, false}), std::invalid_argument);
  EXPECT_THROW(AdaptiveSoftmax({8, 10, {5, 5}, 4.0, false}), std::invalid_argument);
  EXPECT_THROW(AdaptiveSoftmax({8, 10, {10}, 4.0, false}), std::invalid_argument);
  EXPECT_THROW(AdaptiveSoftmax({8, 10, {2, 5}, 4.0, false}), std::invalid_argument);  // 8 / 16 numbers
  AdaptiveSoftmax head({8, 10, {4}, 4.0, false});
  EXPECT_THROW(head.forward(at::zeros({2, 8}), at::tensor(std::vector<int64_t>{0, 10})),
               std::invalid_argument);
}

double cost_of(const std::vector<int64_t>& cutoffs, const std::vector<int64_t>& counts, int64_t width,
               int64_t batch, const ProductCost& cost, double division) {
  double all = 0;
  for (const int64_t count : counts) all += static_cast<double>(count);
  std::vector<int64_t> ends = cutoffs;
  ends.push_back(static_cast<int64_t>(counts.size()));
  double total = cost(static_cast<double>(cutoffs[0] + static_cast<int64_t>(cutoffs.size())),
                      static_cast<double>(width), static_cast<double>(batch));
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    double share = 0;
    for (int64_t c = ends[i]; c < ends[i + 1]; ++c)
      share += static_cast<double>(counts[static_cast<size_t>(c)]) / all;
    const double numbers =
        std::floor(static_cast<double>(width) / std::pow(division, static_cast<double>(i + 1)));
    const double rows = share * static_cast<double>(batch);
    total += cost(numbers, static_cast<double>(width), rows) +
             cost(static_cast<double>(ends[i + 1] - ends[i]), numbers, rows);
  }
  return total;
}

TEST(ChooseCutoffs, NoOtherPairOfCutoffsIsCheaper) {
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < 40; ++i) counts.push_back(10000 / (i + 1));
  const ProductCost cost{100, 1, 50};
  const std::vector<int64_t> chosen = choose_cutoffs(counts, 64, 10, 2, cost, 2.0);
  const double best = cost_of(chosen, counts, 64, 10, cost, 2.0);
  // The grid holds every class below 17, and steps of 6 % above.
  for (int64_t a = 1; a < 17; ++a) {
    EXPECT_LE(best, cost_of({a}, counts, 64, 10, cost, 2.0) + 1e-9) << a;
    for (int64_t b = a + 1; b < 17; ++b)
      EXPECT_LE(best, cost_of({a, b}, counts, 64, 10, cost, 2.0) + 1e-9) << a << b;
  }
}

TEST(ChooseCutoffs, OfALargeVocabularyTheyMakeAValidCheaperHead) {
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < 50000; ++i) counts.push_back(1000000 / (i + 1));
  const std::vector<int64_t> cutoffs = choose_cutoffs(counts, 256, 1000, 4, {1e6, 1, 0});
  EXPECT_NO_THROW(AdaptiveSoftmax({256, 50000, cutoffs, 4.0, false}));
  EXPECT_LT(3 * cost_of(cutoffs, counts, 256, 1000, {1e6, 1, 0}, 4.0), 256.0 * 50000 * 1000);
  EXPECT_THROW(choose_cutoffs({1, 2}, 8, 1, 1, {}), std::invalid_argument);
}

TEST(BinaryTree, HuffmanPathsAreShortWhereCountsAreLargeAndNoneIsThePrefixOfAnother) {
  const std::vector<int64_t> counts = {50, 20, 10, 9, 6, 3, 1, 1};
  const BinaryTree tree = huffman_tree(counts);
  double entropy = 0;
  for (const int64_t count : counts)
    entropy -= static_cast<double>(count) / 100 * std::log2(static_cast<double>(count) / 100);
  EXPECT_GE(tree.mean_length(counts), entropy);
  EXPECT_LT(tree.mean_length(counts), entropy + 1);  // Huffman's bound
  std::set<std::string> codes;
  double kraft = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (i > 0) {
      EXPECT_GE(tree.paths[i].size(), tree.paths[i - 1].size());
    }
    std::string code;
    for (const BinaryTree::Step& step : tree.paths[i]) code += step.right ? '1' : '0';
    for (const std::string& other : codes) {
      EXPECT_NE(code.substr(0, other.size()), other);
      EXPECT_NE(other.substr(0, code.size()), code);
    }
    codes.insert(code);
    kraft += std::pow(0.5, static_cast<double>(code.size()));
  }
  EXPECT_EQ(kraft, 1.0);
}

TEST(BinaryTree, ABalancedOneHasPathsOfOneLengthOrTwo) {
  for (const int64_t classes : {2, 3, 7, 8, 9, 1000}) {
    const BinaryTree tree = balanced_tree(classes);
    size_t least = 1000;
    size_t most = 0;
    for (const auto& path : tree.paths) {
      least = std::min(least, path.size());
      most = std::max(most, path.size());
    }
    EXPECT_EQ(most, static_cast<size_t>(std::ceil(std::log2(static_cast<double>(classes)))));
    EXPECT_LE(most - least, 1U);
  }
  EXPECT_THROW(balanced_tree(1), std::invalid_argument);
  EXPECT_THROW(huffman_tree({1, -1}), std::invalid_argument);
}

HierarchicalSoftmax random_head(BinaryTree tree, int64_t width) {
  HierarchicalSoftmax head(width, std::move(tree));
  head.to(at::kDouble);
  const at::NoGradGuard no_grad;
  head.parameters()[0].normal_();
  return head;
}

TEST(HierarchicalSoftmax, LeavesSumToOneForwardIsAnEntryAndPredictIsTheLargest) {
  at::manual_seed(3);
  for (BinaryTree tree : {huffman_tree({90, 40, 30, 8, 4, 2, 1, 1, 1}), balanced_tree(11)}) {
    const int64_t classes = tree.classes();
    const HierarchicalSoftmax head = random_head(std::move(tree), 5);
    const at::Tensor x = at::randn({40, 5}, at::kDouble);
    const at::Tensor target = at::randint(classes, {40}, at::kLong);
    const at::Tensor all = head.log_prob(x);
    EXPECT_LE((all.exp().sum(1) - 1).abs().max().item<double>(), 1e-12);
    EXPECT_LE(distance(head.forward(x, target), all.gather(1, target.unsqueeze(1)).squeeze(1)), 1e-12);
    int64_t nodes = 0;
    EXPECT_TRUE(at::equal(head.predict(x, &nodes), all.argmax(1)));
    EXPECT_LT(nodes, 40 * (classes - 1));  // some of the tree was given up
  }
}

TEST(HierarchicalSoftmax, StartsAtTwoToTheMinusLength) {
  const HierarchicalSoftmax head(4, huffman_tree({8, 4, 2, 1, 1}));
  const at::Tensor p = head.log_prob(at::randn({1, 4})).exp()[0];
  for (int64_t c = 0; c < 5; ++c)
    EXPECT_NEAR(p[c].item<double>(),
                std::pow(0.5, static_cast<double>(head.tree().paths[static_cast<size_t>(c)].size())), 1e-6);
}

TEST(HierarchicalSoftmax, GradientsEqualFiniteDifferencesDenseAndSparse) {
  at::manual_seed(4);
  HierarchicalSoftmax head = random_head(huffman_tree({9, 5, 4, 2, 1}), 3);
  at::Tensor x = at::randn({6, 3}, at::kDouble);
  const at::Tensor target = at::tensor(std::vector<int64_t>{0, 1, 4, 4, 2, 3});
  std::vector<at::Tensor> leaves = head.parameters();
  leaves.push_back(x);
  const auto loss = [&] { return (head.forward(x, target) * at::arange(1, 7, at::kDouble)).sum(); };
  expect_gradients(loss, leaves);
  HierarchicalSoftmax sparse(3, huffman_tree({9, 5, 4, 2, 1}), true);
  sparse.to(at::kDouble);
  {
    const at::NoGradGuard no_grad;
    sparse.parameters()[0].copy_(head.parameters()[0]);
  }
  (sparse.forward(x.detach(), target) * at::arange(1, 7, at::kDouble)).sum().backward();
  const at::Tensor grad = sparse.parameters()[0].grad();
  EXPECT_TRUE(grad.is_sparse());
  EXPECT_LE(distance(grad.to_dense(), head.parameters()[0].grad()), 1e-12);
  EXPECT_THROW(head.forward(x, at::full({6}, 5, at::kLong)), std::invalid_argument);
}

}  // namespace
}  // namespace regard::layer
