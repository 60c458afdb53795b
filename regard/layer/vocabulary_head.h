#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "regard/layer/adaptive_softmax.h"
#include "regard/layer/hierarchical_softmax.h"

namespace regard::layer {

// A softmax over a vocabulary that does not look at every token for every target.
struct VocabularyHeadOptions {
  enum class Kind : uint8_t { adaptive, hierarchical };
  Kind kind = Kind::adaptive;
  int64_t width = 1;
  std::vector<int64_t> counts;   // how often each token occurs in the training text
  std::vector<int64_t> cutoffs;  // adaptive, see AdaptiveSoftmaxOptions
};

// AdaptiveSoftmax or HierarchicalSoftmax over token ids: the frequent ones come first in the one and lie near
// the root of the other, whatever their ids are. Ties go to the lower id.
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
