#include "regard/layer/polaformer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "regard/autograd/linear.h"

namespace regard::layer {

PolaFormer::PolaFormer(const PolaFormerOptions& options) : options_(options) {
  const int64_t width = options.width;
  if (options.heads < 1 || width < 1 || width % (2 * options.heads) != 0) {
    throw std::invalid_argument("PolaFormer: width is " + std::to_string(width) + ", heads " +
                                std::to_string(options.heads) + "; allowed: heads of an even size");
  }
  if (options.height < 0 || options.columns < 0 || (options.height == 0) != (options.columns == 0) ||
      options.kernel < 1 || options.kernel % 2 == 0 || (options.causal && options.height > 0)) {
    throw std::invalid_argument(
        "PolaFormer: the image is " + std::to_string(options.height) + " by " +
        std::to_string(options.columns) + ", the kernel " + std::to_string(options.kernel) +
        "; allowed: both sizes or neither, an odd kernel, and causal without an image");
  }
  const int64_t size = width / options.heads;
  q_ = register_module("q", std::make_shared<Linear>(width, width));
  kv_ = register_module("kv", std::make_shared<Linear>(width, 2 * width));
  gate_ = register_module("gate", std::make_shared<Linear>(width, width));
  out_ = register_module("out", std::make_shared<Linear>(width, width));
  scale_ = register_parameter("scale", at::zeros({width}, at::kFloat));
  power_ = register_parameter("power", at::zeros({1, options.heads, 1, size}, at::kFloat));
  if (options.height == 0) return;
  positions_ =
      register_parameter("positions", at::zeros({1, options.height * options.columns, width}, at::kFloat));
  const double bound = 1 / static_cast<double>(options.kernel);
  const auto draw = [&](at::IntArrayRef sizes) {
    return at::empty(sizes, at::kFloat).uniform_(-bound, bound);
  };
  convolution_ = register_parameter("convolution", draw({size, 1, options.kernel, options.kernel}));
  convolution_bias_ = register_parameter("convolution_bias", draw({size}));
}

at::Tensor PolaFormer::powers() const {
  return 1 + options_.alpha * at::sigmoid(power_);
}

at::Tensor PolaFormer::features(const at::Tensor& x, bool opposite) const {
  const at::Tensor p = powers();
  const at::Tensor plus = at::pow(at::relu(x), p);
  const at::Tensor minus = at::pow(at::relu(-x), p);
  return at::cat(opposite ? at::TensorList{minus, plus} : at::TensorList{plus, minus}, -1);
}

at::Tensor PolaFormer::forward(const at::Tensor& x, LinearState* state) const {
  if (state != nullptr && !options_.causal)
    throw std::invalid_argument("PolaFormer: a state was given to a layer that is not causal");
  if (positions_.defined() && x.size(1) != positions_.size(1)) {
    throw std::invalid_argument("PolaFormer: there are " + std::to_string(x.size(1)) +
                                " tokens; allowed: one for each of the image's " +
                                std::to_string(positions_.size(1)) + " places");
  }
  const auto kv = kv_->forward(x).chunk(2, -1);
  const at::Tensor scale = at::softplus(scale_);
  const at::Tensor q = split_heads(q_->forward(x) / scale, options_.heads);
  const at::Tensor placed = positions_.defined() ? kv[0] + positions_ : kv[0];
  const at::Tensor k = features(split_heads(placed / scale, options_.heads));
  const at::Tensor v = split_heads(kv[1], options_.heads);
  const auto halves = v.chunk(2, -1);
  attention::LinearSpec spec;
  spec.denominator = attention::Denominator::add;
  spec.epsilon = options_.epsilon;
  spec.causal = options_.causal;
  autograd::LinearExtras extras;
  if (state != nullptr) {
    extras.state = state->state;
    extras.norm = state->norm;
  }
  // The streams are heads of their own: 2 H of them in one call.
  const autograd::LinearResult result =
      autograd::linear_attention(spec, at::cat({features(q), features(q, true)}, 1), at::cat({k, k}, 1),
                                 at::cat({halves[0], halves[1]}, 1), extras);
  if (state != nullptr) *state = {result.state, result.norm, state->position + x.size(1)};
  const auto streams = result.out.chunk(2, 1);
  at::Tensor mixed = at::cat({streams[0], streams[1]}, -1);  // [B, H, L, D]
  if (convolution_.defined()) {
    const int64_t size = v.size(3);
    const at::Tensor image =
        v.transpose(2, 3).reshape({x.size(0) * options_.heads, size, options_.height, options_.columns});
    const at::Tensor spread =
        at::conv2d(image, convolution_, convolution_bias_, at::IntArrayRef{1, 1},
                   at::IntArrayRef{options_.kernel / 2, options_.kernel / 2}, at::IntArrayRef{1, 1}, size);
    mixed = mixed + spread.reshape({x.size(0), options_.heads, size, x.size(1)}).transpose(2, 3);
  }
  return out_->forward(join_heads(mixed) * gate_->forward(x));
}

}  // namespace regard::layer
