#include "regard/layer/linear_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

#include "regard/autograd/linear.h"

namespace regard::layer {
namespace {

using Feature = LinearAttentionOptions::Feature;
using Gate = GatedDeltaOptions::Gate;

void require_heads(const char* layer, int64_t width, int64_t heads) {
  if (width < 1 || heads < 1 || width % heads != 0) {
    throw std::invalid_argument(std::string(layer) + ": width is " + std::to_string(width) + ", heads " +
                                std::to_string(heads) + "; allowed: a width of at least 1 that heads divide");
  }
}

}  // namespace

at::Tensor split_heads(const at::Tensor& x, int64_t heads) {
  return x.unflatten(-1, {heads, x.size(-1) / heads}).transpose(1, 2);
}

at::Tensor join_heads(const at::Tensor& x) {
  return x.transpose(1, 2).flatten(2);
}

at::Tensor cosformer_features(const at::Tensor& x, int64_t first, int64_t length) {
  const at::Tensor angle =
      (at::arange(x.size(2), at::TensorOptions(at::kDouble)) + static_cast<double>(first + 1)) *
      (std::numbers::pi / 2 / static_cast<double>(length));
  const at::Tensor turn = angle.unsqueeze(-1);
  const at::Tensor positive = at::relu(x);
  return at::cat({positive * turn.sin().to(x.scalar_type()), positive * turn.cos().to(x.scalar_type())}, -1);
}

LinearAttention::LinearAttention(const LinearAttentionOptions& options) : options_(options) {
  require_heads("LinearAttention", options.width, options.heads);
  if (options_.kv_heads == 0) options_.kv_heads = options.heads;
  if (options_.kv_heads < 1 || options.heads % options_.kv_heads != 0) {
    throw std::invalid_argument("LinearAttention: kv_heads is " + std::to_string(options.kv_heads) +
                                "; allowed: a divisor of heads, " + std::to_string(options.heads));
  }
  const int64_t kv_width = options.width / options.heads * options_.kv_heads;
  q_ = register_module("q", std::make_shared<Linear>(options.width, options.width, options.bias));
  k_ = register_module("k", std::make_shared<Linear>(options.width, kv_width, options.bias));
  v_ = register_module("v", std::make_shared<Linear>(options.width, kv_width, options.bias));
  out_ = register_module("out", std::make_shared<Linear>(options.width, options.width, options.bias));
}

at::Tensor LinearAttention::forward(const at::Tensor& x, const at::Tensor& key_lengths,
                                    LinearState* state) const {
  if (state != nullptr && !options_.causal) {
    throw std::invalid_argument("LinearAttention: a state was given to a layer that is not causal");
  }
  at::Tensor q = split_heads(q_->forward(x), options_.heads);
  at::Tensor k = split_heads(k_->forward(x), options_.kv_heads);
  const at::Tensor v = split_heads(v_->forward(x), options_.kv_heads);
  attention::LinearSpec spec;
  spec.causal = options_.causal;
  spec.denominator = attention::Denominator::add;
  spec.epsilon = options_.epsilon;
  if (options_.feature == Feature::elu1) spec.feature = attention::FeatureMap::elu1;
  if (options_.feature == Feature::relu) spec.feature = attention::FeatureMap::relu;
  if (options_.feature == Feature::cosformer) {
    const int64_t first = state != nullptr ? state->position : 0;
    const int64_t length = options_.length > 0 ? options_.length : x.size(1);
    if (first + x.size(1) > length || (state != nullptr && options_.length == 0)) {
      throw std::invalid_argument("LinearAttention: the text has " + std::to_string(first + x.size(1)) +
                                  " tokens and length is " + std::to_string(options_.length) +
                                  "; allowed: a length of at least that, and with a state not 0");
    }
    q = cosformer_features(q, first, length);
    k = cosformer_features(k, first, length);
    spec.denominator = attention::Denominator::clamp;
  }
  autograd::LinearExtras extras;
  extras.key_lengths = key_lengths;
  if (state != nullptr) {
    extras.state = state->state;
    extras.norm = state->norm;
  }
  const autograd::LinearResult result = autograd::linear_attention(spec, q, k, v, extras);
  if (state != nullptr) *state = {result.state, result.norm, state->position + x.size(1)};
  return out_->forward(join_heads(result.out));
}

GatedDelta::GatedDelta(const GatedDeltaOptions& options) : options_(options) {
  require_heads("GatedDelta", options.width, options.heads);
  const int64_t width = options.width;
  const auto project = [&](const char* name, int64_t out, bool bias) {
    return register_module(name, std::make_shared<Linear>(width, out, bias));
  };
  q_ = project("q", width, false);
  k_ = project("k", width, false);
  v_ = project("v", width, false);
  gate_ = project("gate", width, false);
  if (options.delta) beta_ = project("beta", options.heads, true);
  if (options.gate != Gate::none)
    decay_ = project("decay", options.gate == Gate::head ? options.heads : width, true);
  norm_ = register_module(
      "norm", std::make_shared<Norm>(kernel::NormForm::rms, options.norm_epsilon, width / options.heads));
  out_ = project("out", width, false);
}

at::Tensor GatedDelta::forward(const at::Tensor& x, LinearState* state) const {
  at::Tensor q = split_heads(at::silu(q_->forward(x)), options_.heads);
  at::Tensor k = split_heads(at::silu(k_->forward(x)), options_.heads);
  const at::Tensor v = split_heads(v_->forward(x), options_.heads);
  attention::LinearSpec spec;
  autograd::LinearExtras extras;
  if (options_.delta) {
    const auto unit = [](const at::Tensor& y) { return y * (y.square().sum(-1, true) + 1e-6).rsqrt(); };
    q = unit(q);
    k = unit(k);
    extras.beta = at::sigmoid(beta_->forward(x)).transpose(1, 2).unsqueeze(-1);
  }
  spec.scale = 1 / std::sqrt(static_cast<double>(options_.width / options_.heads));
  if (decay_)
    extras.log_decay =
        split_heads(at::log_sigmoid(decay_->forward(x)) / options_.temperature, options_.heads);
  if (state != nullptr) extras.state = state->state;
  const autograd::LinearResult result = autograd::linear_attention(spec, q, k, v, extras);
  if (state != nullptr) *state = {result.state, {}, state->position + x.size(1)};
  const at::Tensor mixed = norm_->forward(result.out.transpose(1, 2)).flatten(2);
  return out_->forward(mixed * at::silu(gate_->forward(x)));
}

}  // namespace regard::layer
