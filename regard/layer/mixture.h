#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "regard/layer/basic.h"

namespace regard::layer {

struct MixtureOptions {
  int64_t width = 1;
  int64_t hidden = 1;  // of each expert, a SwiGLU
  int64_t experts = 2;
  int64_t chosen = 1;  // experts a token goes to
  bool normalize =
      true;  // the weights of the chosen ones sum to 1 (Mixtral); else they are the router's own (Switch)
};

// A feed-forward of many experts of which each token uses a few (Shazeer et al. 2017, arXiv 1701.06538; Fedus
// et al. 2021, arXiv 2101.03961). No expert turns a token away.
class MixtureOfExperts : public torch::nn::Module {
 public:
  explicit MixtureOfExperts(const MixtureOptions& options);

  struct Result {
    at::Tensor out;      // as x
    at::Tensor balance;  // experts * sum of (share of choices) (mean probability): 1 when all are used alike;
                         // to be added to the loss with a small factor (Switch, section 2.2). Its gradient
                         // goes to the router
    at::Tensor counts;   // [experts] int64, how many tokens chose each
  };
  // x: [..., width]
  Result forward(const at::Tensor& x) const;

 private:
  MixtureOptions options_;
  std::shared_ptr<Linear> router_;
  std::vector<std::shared_ptr<FeedForward>> experts_;
};

}  // namespace regard::layer
