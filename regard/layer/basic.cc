#include "regard/layer/basic.h"

#include <ATen/ATen.h>

#include <utility>

namespace regard::layer {

Linear::Linear(Weight weight, at::Tensor bias) : weight_(std::move(weight)), bias_(std::move(bias)) {
  if (weight_.dense().defined())
    register_parameter("weight", weight_.dense(), weight_.dense().requires_grad());
  if (bias_.defined()) register_parameter("bias", bias_, bias_.requires_grad());
}

Norm::Norm(NormKind kind, double epsilon, at::Tensor weight, at::Tensor bias)
    : kind_(kind), epsilon_(epsilon), weight_(std::move(weight)), bias_(std::move(bias)) {
  register_parameter("weight", weight_, weight_.requires_grad());
  if (bias_.defined()) register_parameter("bias", bias_, bias_.requires_grad());
}

at::Tensor Norm::forward(const at::Tensor& x) const {
  const std::vector<int64_t> axis = {weight_.size(0)};
  if (kind_ == NormKind::rms) return at::rms_norm(x, axis, weight_, epsilon_);
  return at::layer_norm(x, axis, weight_, bias_, epsilon_);
}

at::Tensor activate(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::gelu:
      return at::gelu(x);
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case Activation::silu:
      return at::silu(x);
    case Activation::relu:
      return at::relu(x);
  }
  return x;
}

FeedForward::FeedForward(Activation activation, std::shared_ptr<Linear> up, std::shared_ptr<Linear> down,
                         std::shared_ptr<Linear> gate)
    : activation_(activation), up_(std::move(up)), down_(std::move(down)), gate_(std::move(gate)) {
  register_module("up", up_);
  register_module("down", down_);
  if (gate_) register_module("gate", gate_);
}

at::Tensor FeedForward::forward(const at::Tensor& x) const {
  if (!gate_) return down_->forward(activate(activation_, up_->forward(x)));
  return down_->forward(activate(activation_, gate_->forward(x)) * up_->forward(x));
}

}  // namespace regard::layer
