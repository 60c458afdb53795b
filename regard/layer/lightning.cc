#include "regard/layer/lightning.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "regard/autograd/linear.h"

namespace regard::layer {

at::Tensor lightning_log_decays(int64_t heads, int64_t layer, int64_t layers) {
  if (heads < 1 || layer < 0 || layer >= layers) {
    throw std::invalid_argument("lightning_log_decays: heads is " + std::to_string(heads) + ", layer " +
                                std::to_string(layer) + " of " + std::to_string(layers) +
                                "; allowed: heads of at least 1, a layer below layers");
  }
  const double share = static_cast<double>(layer) / (static_cast<double>(layers - 1) + 1e-5);
  at::Tensor result = at::empty({heads}, at::kDouble);
  for (int64_t h = 0; h < heads; ++h)
    result.mutable_data_ptr<double>()[h] =
        -std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads)) * (1 - share + 1e-5);
  return result;
}

Lightning::Lightning(const LightningOptions& options) : options_(options) {
  if (options.width < 1 || options.head_size < 1) {
    throw std::invalid_argument("Lightning: width is " + std::to_string(options.width) + ", head_size " +
                                std::to_string(options.head_size) + "; allowed: at least 1");
  }
  log_decays_ = register_buffer(
      "log_decays",
      lightning_log_decays(options.heads, options.layer, options.layers).view({1, -1, 1, 1}).to(at::kFloat));
  const int64_t inner = options.heads * options.head_size;
  qkv_ = register_module("qkv", std::make_shared<Linear>(options.width, 3 * inner, false));
  norm_ = register_module("norm", std::make_shared<Norm>(kernel::NormForm::rms, options.norm_epsilon, inner));
  gate_ = register_module("gate", std::make_shared<Linear>(options.width, inner, false));
  out_ = register_module("out", std::make_shared<Linear>(inner, options.width, false));
}

at::Tensor Lightning::forward(const at::Tensor& x, const at::Tensor& token_mask, LinearState* state) const {
  const auto parts = split_heads(at::silu(qkv_->forward(x)), options_.heads).chunk(3, -1);
  at::Tensor k = parts[1];
  at::Tensor v = parts[2];
  if (token_mask.defined()) {
    if (token_mask.dim() != 2 || token_mask.size(0) != x.size(0) || token_mask.size(1) != x.size(1)) {
      throw std::invalid_argument("Lightning: token_mask must be [batch, length]");
    }
    const at::Tensor hidden = token_mask.to(at::kBool).logical_not().unsqueeze(1).unsqueeze(-1);
    k = k.masked_fill(hidden, 0.0);
    v = v.masked_fill(hidden, 0.0);
  }
  autograd::LinearExtras extras;
  extras.log_decay = log_decays_.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  if (state != nullptr) extras.state = state->state;
  const autograd::LinearResult result = autograd::linear_attention({}, parts[0], k, v, extras);
  if (state != nullptr) *state = {result.state, {}, state->position + x.size(1)};
  return out_->forward(at::sigmoid(gate_->forward(x)) * norm_->forward(join_heads(result.out)));
}

}  // namespace regard::layer
