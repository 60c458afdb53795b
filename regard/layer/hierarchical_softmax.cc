#include "regard/layer/hierarchical_softmax.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>

namespace regard::layer {
namespace {

// Paths from who is whose child; below 0: class -1 - child.
BinaryTree tree_of(const std::vector<std::pair<int64_t, int64_t>>& children) {
  BinaryTree tree;
  tree.paths.resize(children.size() + 1);
  std::vector<std::pair<int64_t, std::vector<BinaryTree::Step>>> open = {
      {static_cast<int64_t>(children.size()) - 1, {}}};
  while (!open.empty()) {
    const auto [node, path] = std::move(open.back());
    open.pop_back();
    for (const bool right : {false, true}) {
      const int64_t child =
          right ? children[static_cast<size_t>(node)].second : children[static_cast<size_t>(node)].first;
      std::vector<BinaryTree::Step> longer = path;
      longer.push_back({node, right});
      if (child < 0) {
        tree.paths[static_cast<size_t>(-1 - child)] = std::move(longer);
      } else {
        open.emplace_back(child, std::move(longer));
      }
    }
  }
  return tree;
}

void check_classes(int64_t classes) {
  if (classes < 2) {
    throw std::invalid_argument("BinaryTree: there are " + std::to_string(classes) +
                                " classes; there must be at least 2");
  }
}

}  // namespace

double BinaryTree::mean_length(const std::vector<int64_t>& counts) const {
  double steps = 0;
  double all = 0;
  for (size_t i = 0; i < paths.size(); ++i) {
    steps += static_cast<double>(counts.at(i)) * static_cast<double>(paths[i].size());
    all += static_cast<double>(counts[i]);
  }
  return all > 0 ? steps / all : 0;
}

BinaryTree huffman_tree(const std::vector<int64_t>& counts) {
  check_classes(static_cast<int64_t>(counts.size()));
  if (*std::min_element(counts.begin(), counts.end()) < 0) {
    throw std::invalid_argument("huffman_tree: a count is negative; allowed: 0 or more");
  }
  std::vector<int64_t> order(counts.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return counts[static_cast<size_t>(a)] < counts[static_cast<size_t>(b)];
  });
  // Two queues, both rising: leaves and the nodes made of them.
  std::vector<std::pair<int64_t, int64_t>> children;
  std::vector<int64_t> weights;
  size_t leaf = 0;
  size_t inner = 0;
  const auto take = [&] {
    const bool from_leaf =
        inner == weights.size() ||
        (leaf < order.size() && counts[static_cast<size_t>(order[leaf])] <= weights[inner]);
    if (from_leaf) {
      const int64_t id = order[leaf++];
      return std::pair<int64_t, int64_t>{-1 - id, counts[static_cast<size_t>(id)]};
    }
    const auto node = static_cast<int64_t>(inner);
    return std::pair<int64_t, int64_t>{node, weights[inner++]};
  };
  while (children.size() + 1 < counts.size()) {
    const auto low = take();
    const auto high = take();
    children.emplace_back(low.first, high.first);
    weights.push_back(low.second + high.second);
  }
  return tree_of(children);
}

BinaryTree balanced_tree(int64_t classes) {
  check_classes(classes);
  std::vector<std::pair<int64_t, int64_t>> children;
  // The tree over classes [begin, end); the root is made last.
  const auto build = [&](const auto& self, int64_t begin, int64_t end) -> int64_t {
    if (end - begin == 1) return -1 - begin;
    const int64_t middle = begin + (end - begin + 1) / 2;
    const int64_t left = self(self, begin, middle);
    const int64_t right = self(self, middle, end);
    children.emplace_back(left, right);
    return static_cast<int64_t>(children.size()) - 1;
  };
  build(build, 0, classes);
  return tree_of(children);
}

HierarchicalSoftmax::HierarchicalSoftmax(int64_t width, BinaryTree tree, bool sparse)
    : tree_(std::move(tree)), sparse_(sparse) {
  check_classes(tree_.classes());
  if (width < 1) throw std::invalid_argument("HierarchicalSoftmax: width must be at least 1");
  vectors_ = register_parameter("vectors", at::zeros({tree_.classes() - 1, width}, at::kFloat));
  children_.resize(static_cast<size_t>(2 * (tree_.classes() - 1)));
  for (int64_t c = 0; c < tree_.classes(); ++c) {
    begins_.push_back(static_cast<int64_t>(nodes_.size()));
    const std::vector<BinaryTree::Step>& path = tree_.paths[static_cast<size_t>(c)];
    for (size_t i = 0; i < path.size(); ++i) {
      nodes_.push_back(path[i].node);
      signs_.push_back(path[i].right ? 1.0F : -1.0F);
      children_[static_cast<size_t>(2 * path[i].node + (path[i].right ? 1 : 0))] =
          i + 1 < path.size() ? path[i + 1].node : -1 - c;
    }
  }
  begins_.push_back(static_cast<int64_t>(nodes_.size()));
}

at::Tensor HierarchicalSoftmax::forward(const at::Tensor& x, const at::Tensor& target) const {
  if (target.dim() != 1 || target.size(0) != x.size(0) || target.scalar_type() != at::kLong) {
    throw std::invalid_argument("HierarchicalSoftmax: target must be int64 [N], one for each of the " +
                                std::to_string(x.size(0)) + " rows");
  }
  std::vector<int64_t> rows, nodes;
  std::vector<float> signs;
  const at::Tensor targets = target.contiguous();
  for (int64_t i = 0; i < targets.size(0); ++i) {
    const int64_t c = targets.const_data_ptr<int64_t>()[i];
    if (c < 0 || c >= tree_.classes()) {
      throw std::invalid_argument("HierarchicalSoftmax: target[" + std::to_string(i) + "] is " +
                                  std::to_string(c) + "; allowed: 0 to " +
                                  std::to_string(tree_.classes() - 1));
    }
    for (int64_t at = begins_[static_cast<size_t>(c)]; at < begins_[static_cast<size_t>(c) + 1]; ++at) {
      rows.push_back(i);
      nodes.push_back(nodes_[static_cast<size_t>(at)]);
      signs.push_back(signs_[static_cast<size_t>(at)]);
    }
  }
  const at::Tensor row = at::tensor(rows, at::kLong);
  const at::Tensor vectors = at::embedding(vectors_, at::tensor(nodes, at::kLong), -1, false, sparse_);
  const at::Tensor sign = at::tensor(signs, at::kFloat).to(x.scalar_type());
  const at::Tensor logits = (x.index_select(0, row) * vectors).sum(-1) * sign;
  return at::zeros({x.size(0)}, x.options()).index_add(0, row, at::log_sigmoid(logits));
}

at::Tensor HierarchicalSoftmax::log_prob(const at::Tensor& x) const {
  const at::Tensor logits = at::linear(x, vectors_);  // [N, nodes]
  const at::Tensor right = at::log_sigmoid(logits);
  const at::Tensor left = at::log_sigmoid(-logits);
  const at::Tensor both = at::cat({left, right}, 1).t();  // [2 nodes, N]
  std::vector<int64_t> classes, columns;
  for (int64_t c = 0; c < tree_.classes(); ++c) {
    for (const BinaryTree::Step& step : tree_.paths[static_cast<size_t>(c)]) {
      classes.push_back(c);
      columns.push_back(step.node + (step.right ? tree_.classes() - 1 : 0));
    }
  }
  return at::zeros({tree_.classes(), x.size(0)}, x.options())
      .index_add(0, at::tensor(classes, at::kLong), both.index_select(0, at::tensor(columns, at::kLong)))
      .t();
}

at::Tensor HierarchicalSoftmax::predict(const at::Tensor& x, int64_t* nodes) const {
  const at::Tensor input = x.detach().to(at::kDouble).contiguous();
  const at::Tensor vectors = vectors_.detach().to(at::kDouble).contiguous();
  const double* u = vectors.const_data_ptr<double>();
  const int64_t width = vectors.size(1);
  at::Tensor best = at::empty({x.size(0)}, at::kLong);
  int64_t evaluated = 0;
  for (int64_t i = 0; i < x.size(0); ++i) {
    const double* row = input.const_data_ptr<double>() + i * width;
    std::priority_queue<std::pair<double, int64_t>> open;  // ln p so far, child
    open.emplace(0.0, tree_.classes() - 2);
    while (open.top().second >= 0) {
      const auto [p, node] = open.top();
      open.pop();
      const double logit = std::inner_product(row, row + width, u + node * width, 0.0);
      ++evaluated;
      // ln sigmoid(z), stable on both sides.
      const auto log_sigmoid = [](double z) { return std::min(z, 0.0) - std::log1p(std::exp(-std::abs(z))); };
      open.emplace(p + log_sigmoid(-logit), children_[static_cast<size_t>(2 * node)]);
      open.emplace(p + log_sigmoid(logit), children_[static_cast<size_t>(2 * node + 1)]);
    }
    best.mutable_data_ptr<int64_t>()[i] = -1 - open.top().second;
  }
  if (nodes != nullptr) *nodes = evaluated;
  return best;
}

}  // namespace regard::layer
