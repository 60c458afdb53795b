#include "regard/layer/transnormer.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <string>

#include "regard/autograd/attention.h"
#include "regard/autograd/linear.h"

namespace regard::layer {
namespace {

void require(const char* layer, const TransNormerOptions& options) {
  if (options.heads < 1 || options.width < 1 || options.width % options.heads != 0 || options.block < 1) {
    throw std::invalid_argument(std::string(layer) + ": width is " + std::to_string(options.width) +
                                ", heads " + std::to_string(options.heads) + ", block " +
                                std::to_string(options.block) +
                                "; allowed: at least 1 each, and heads that divide the width");
  }
}

void require_causal(const char* layer, const void* state, bool causal) {
  if (state != nullptr && !causal)
    throw std::invalid_argument(std::string(layer) + ": a state was given to a layer that is not causal");
}

}  // namespace

NormAttention::NormAttention(const TransNormerOptions& options) : options_(options) {
  require("NormAttention", options);
  const auto project = [&](const char* name) {
    return register_module(name, std::make_shared<Linear>(options.width, options.width));
  };
  q_ = project("q");
  k_ = project("k");
  v_ = project("v");
  norm_ = register_module("norm",
                          std::make_shared<Norm>(kernel::NormForm::rms, options.norm_epsilon, options.width));
  out_ = project("out");
}

at::Tensor NormAttention::forward(const at::Tensor& x, LinearState* state) const {
  require_causal("NormAttention", state, options_.causal);
  attention::LinearSpec spec;
  spec.feature = attention::FeatureMap::elu1;
  spec.causal = options_.causal;
  autograd::LinearExtras extras;
  if (state != nullptr) extras.state = state->state;
  const autograd::LinearResult result = autograd::linear_attention(
      spec, split_heads(q_->forward(x), options_.heads), split_heads(k_->forward(x), options_.heads),
      split_heads(v_->forward(x), options_.heads), extras);
  if (state != nullptr) *state = {result.state, {}, state->position + x.size(1)};
  return out_->forward(norm_->forward(join_heads(result.out)));
}

DiagAttention::DiagAttention(const TransNormerOptions& options) : options_(options) {
  require("DiagAttention", options);
  const auto project = [&](const char* name) {
    return register_module(name, std::make_shared<Linear>(options.width, options.width));
  };
  q_ = project("q");
  k_ = project("k");
  v_ = project("v");
  out_ = project("out");
}

at::Tensor DiagAttention::forward(const at::Tensor& x, BlockState* state) const {
  require_causal("DiagAttention", state, options_.causal);
  const at::Tensor q = split_heads(q_->forward(x), options_.heads);
  at::Tensor k = split_heads(k_->forward(x), options_.heads);
  at::Tensor v = split_heads(v_->forward(x), options_.heads);
  if (state != nullptr && state->k.defined()) {
    k = at::cat({state->k, k}, 2);
    v = at::cat({state->v, v}, 2);
  }
  // The keys begin with a block, so that places among them say which block a row is of.
  constexpr auto kAlign = attention::Align::bottom_right;
  attention::Spec spec;
  spec.mask = attention::Mask::same_block(options_.block, kAlign);
  if (options_.causal) spec.mask = spec.mask & attention::Mask::causal(kAlign);
  const at::Tensor mixed = autograd::attention(spec, q, k, v);
  if (state != nullptr) {
    const int64_t kept = k.size(2) % options_.block;
    const auto tail = [&](const at::Tensor& y) { return y.narrow(2, y.size(2) - kept, kept).clone(); };
    *state = {tail(k), tail(v), state->position + x.size(1)};
  }
  return out_->forward(join_heads(mixed));
}

}  // namespace regard::layer
