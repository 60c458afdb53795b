#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "regard/layer/basic.h"

namespace regard::layer {

struct AdaptiveSoftmaxOptions {
  int64_t width = 1;
  int64_t classes = 2;           // sorted by falling frequency
  std::vector<int64_t> cutoffs;  // rising, inside (0, classes): the shortlist ends at the first, clusters at
                                 // the others and at `classes`
  double division = 4.0;         // cluster i works in floor(width / division^(i + 1)) numbers
  bool head_bias = false;
};

// Adaptive softmax (Grave et al. 2017, arXiv 1609.04309), in the layout of
// torch.nn.AdaptiveLogSoftmaxWithLoss: a head of the frequent classes and one column for each cluster of
// rarer ones; a cluster is looked into only when a target lies in it. Works in the type of its parameters.
class AdaptiveSoftmax : public torch::nn::Module {
 public:
  // Throws std::invalid_argument for cutoffs that do not rise and where a cluster would work in 0 numbers.
  explicit AdaptiveSoftmax(const AdaptiveSoftmaxOptions& options);

  // x: [N, width], target: [N] int64 in [0, classes) -> ln p(target) [N]. The loss is minus its mean.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& target) const;
  // ln p of all classes: [N, classes].
  at::Tensor log_prob(const at::Tensor& x) const;
  // The most likely class [N]: where the head's best column is in the shortlist nothing else can win.
  at::Tensor predict(const at::Tensor& x) const;

 private:
  int64_t shortlist() const { return options_.cutoffs.front(); }
  int64_t clusters() const { return static_cast<int64_t>(tails_.size()); }
  at::Tensor head_log_prob(const at::Tensor& x) const;
  at::Tensor cluster_log_prob(int64_t cluster, const at::Tensor& x) const;

  AdaptiveSoftmaxOptions options_;  // cutoffs end with classes
  at::Tensor head_, head_bias_;     // [shortlist + clusters, width]
  struct Tail {
    at::Tensor down;  // [numbers, width]
    at::Tensor up;    // [classes of the cluster, numbers]
  };
  std::vector<Tail> tails_;
};

// What a product of `batch` rows with a [width, columns] matrix costs: flat while it is small, then linear
// (the paper's section 4.1, there measured on a GPU). Units are free.
struct ProductCost {
  double flat = 0;   // paid in any case
  double each = 1;   // of one multiplication
  double least = 0;  // multiplications that cost no more than none
  double operator()(double columns, double width, double batch) const;
};

// The cutoffs that make a batch cheapest by the cost model: exact over a grid of class counts, by dynamic
// programming over clusters. counts: of the classes, falling. clusters: most of them, at least 1. Fewer are
// chosen where more do not pay.
std::vector<int64_t> choose_cutoffs(const std::vector<int64_t>& counts, int64_t width, int64_t batch,
                                    int64_t clusters, const ProductCost& cost, double division = 4.0);

}  // namespace regard::layer
