#include "regard/layer/vocabulary_head.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace regard::layer {

VocabularyHead::VocabularyHead(const VocabularyHeadOptions& options) : options_(options) {
  const std::vector<int64_t>& counts = options_.counts;
  const auto classes = static_cast<int64_t>(counts.size());
  if (classes < 2) throw std::invalid_argument("VocabularyHead: counts of at least two tokens are needed");
  if (options.kind == VocabularyHeadOptions::Kind::hierarchical) {
    hierarchical_ =
        register_module("tree", std::make_shared<HierarchicalSoftmax>(options.width, huffman_tree(counts)));
    return;
  }
  std::vector<int64_t> order(counts.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return counts[static_cast<size_t>(a)] > counts[static_cast<size_t>(b)];
  });
  class_of_ = at::empty({classes}, at::kLong);
  for (int64_t c = 0; c < classes; ++c)
    class_of_.mutable_data_ptr<int64_t>()[order[static_cast<size_t>(c)]] = c;
  adaptive_ = register_module(
      "adaptive", std::make_shared<AdaptiveSoftmax>(AdaptiveSoftmaxOptions{.width = options.width,
                                                                           .classes = classes,
                                                                           .cutoffs = options.cutoffs,
                                                                           .division = options.division}));
}

at::Tensor VocabularyHead::forward(const at::Tensor& x, const at::Tensor& target) const {
  if (hierarchical_) return hierarchical_->forward(x, target);
  return adaptive_->forward(x, class_of_.index_select(0, target));
}

at::Tensor VocabularyHead::log_prob(const at::Tensor& x) const {
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  const at::Tensor all =
      hierarchical_ ? hierarchical_->log_prob(rows) : adaptive_->log_prob(rows).index_select(1, class_of_);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = all.size(1);
  return all.view(shape);
}

}  // namespace regard::layer
