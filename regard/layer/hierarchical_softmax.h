#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

namespace regard::layer {

// A binary tree whose leaves are the classes. Inner nodes are numbered 0 .. classes - 2; the root is the last
// one.
struct BinaryTree {
  struct Step {
    int64_t node;  // inner
    bool right;
  };
  std::vector<std::vector<Step>> paths;  // of each class, from the root

  int64_t classes() const { return static_cast<int64_t>(paths.size()); }
  // Mean path length under these counts: the cost of a token.
  double mean_length(const std::vector<int64_t>& counts) const;
};

// The tree of the shortest mean path (Huffman 1952): frequent classes are near the root. Linear after a sort.
// counts: at least 2, none negative. Ties are taken in one order: the same tree everywhere.
BinaryTree huffman_tree(const std::vector<int64_t>& counts);
// All paths within one step of each other.
BinaryTree balanced_tree(int64_t classes);

// Hierarchical softmax (Morin and Bengio 2005; with a Huffman tree: Mikolov et al. 2013, arXiv 1310.4546):
// p(class | x) is the product over its path of sigmoid(u . x) to the right and sigmoid(-u . x) to the left, u
// a vector of the inner node. A target costs its path, not all classes. Right has label 1, as in fastText; no
// table of the sigmoid and no clamp, as word2vec and fastText have them. Works in the type of its parameters.
class HierarchicalSoftmax : public torch::nn::Module {
 public:
  // The vectors are 0 at first: every p is 2^-length. sparse: the vectors' gradient is a sparse tensor, so
  // that a step costs what its paths cost (for SGD and other optimisers that take one).
  HierarchicalSoftmax(int64_t width, BinaryTree tree, bool sparse = false);

  // x: [N, width], target: [N] int64 -> ln p(target) [N].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& target) const;
  // ln p of all classes: [N, classes]; costs as much as a full softmax.
  at::Tensor log_prob(const at::Tensor& x) const;
  // The most likely class of each row [N]. Best first: a path's probability only falls, so whoever is less
  // likely already is given up. Looks at all classes in the worst case. nodes, if given: how many inner nodes
  // were evaluated in all.
  at::Tensor predict(const at::Tensor& x, int64_t* nodes = nullptr) const;

  const BinaryTree& tree() const { return tree_; }

 private:
  BinaryTree tree_;
  bool sparse_;
  at::Tensor vectors_;  // [classes - 1, width]
  // Of class c, steps [begins[c], begins[c + 1]).
  std::vector<int64_t> begins_, nodes_;
  std::vector<float> signs_;
  // children_[2 node], [2 node + 1]: left and right; below 0: the class -1 - child.
  std::vector<int64_t> children_;
};

}  // namespace regard::layer
