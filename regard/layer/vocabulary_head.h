#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "regard/layer/adaptive_softmax.h"
#include "regard/layer/hierarchical_softmax.h"
#include "regard/layer/options.h"

namespace regard::layer {

// A softmax over a vocabulary that does not look at every token for every target: AdaptiveSoftmax or
// HierarchicalSoftmax over token ids. The frequent ones come first in the one and lie near the root of the
// other, whatever their ids are. Ties go to the lower id.
class VocabularyHead : public torch::nn::Module {
 public:
  explicit VocabularyHead(const VocabularyHeadOptions& options);

  // x: [N, width], target: [N] int64 ids -> ln p [N].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& target) const;
  // x: [..., width] -> ln p of every token [..., vocabulary]; costs what a full softmax does, or more.
  at::Tensor log_prob(const at::Tensor& x) const;

  const VocabularyHeadOptions& options() const { return options_; }

 private:
  VocabularyHeadOptions options_;
  at::Tensor class_of_;  // [vocabulary] adaptive: of each id
  std::shared_ptr<AdaptiveSoftmax> adaptive_;
  std::shared_ptr<HierarchicalSoftmax> hierarchical_;
};

}  // namespace regard::layer
