#include "regard/layer/mixture.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <string>

namespace regard::layer {

MixtureOfExperts::MixtureOfExperts(const MixtureOptions& options) : options_(options) {
  if (options.experts < 1 || options.chosen < 1 || options.chosen > options.experts) {
    throw std::invalid_argument("MixtureOfExperts: chosen is " + std::to_string(options.chosen) + " of " +
                                std::to_string(options.experts) + " experts; allowed: 1 to all of them");
  }
  router_ = register_module("router", std::make_shared<Linear>(options.width, options.experts, false));
  for (int64_t i = 0; i < options.experts; ++i) {
    experts_.push_back(register_module(
        "expert" + std::to_string(i),
        std::make_shared<FeedForward>(Activation::silu, options.width, options.hidden, true)));
  }
}

MixtureOfExperts::Result MixtureOfExperts::forward(const at::Tensor& x) const {
  const at::Tensor tokens = x.reshape({-1, x.size(-1)});
  const at::Tensor probabilities = at::softmax(router_->forward(tokens), -1);
  auto [weights, choices] = probabilities.topk(options_.chosen, -1);
  if (options_.normalize) weights = weights / weights.sum(-1, true);
  at::Tensor out = at::zeros_like(tokens);
  at::Tensor counts = at::zeros({options_.experts}, at::kLong);
  for (int64_t e = 0; e < options_.experts; ++e) {
    const at::Tensor places = (choices == e).nonzero();  // [n, 2]: token, rank among its choices
    counts[e] = places.size(0);
    if (places.size(0) == 0) continue;
    const at::Tensor rows = places.select(1, 0);
    const at::Tensor weight = weights.index({rows, places.select(1, 1)}).unsqueeze(-1);
    const at::Tensor result = experts_[static_cast<size_t>(e)]->forward(tokens.index_select(0, rows));
    out = out.index_add(0, rows, result * weight);
  }
  const at::Tensor shares = counts.to(x.scalar_type()) /
                            static_cast<double>(std::max<int64_t>(tokens.size(0) * options_.chosen, 1));
  const at::Tensor balance = (shares * probabilities.mean(0)).sum() * options_.experts;
  return {out.view(x.sizes()), balance, counts};
}

}  // namespace regard::layer
