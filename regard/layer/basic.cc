#include "regard/layer/basic.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>
#include <vector>

#include "regard/autograd/block_parts.h"
#include "regard/autograd/norm.h"
#include "regard/layer/dropout.h"

namespace regard::layer {
Linear::Linear(Weight weight, at::Tensor bias) : weight_(std::move(weight)), bias_(std::move(bias)) {
  if (weight_.dense().defined())
    register_parameter("weight", weight_.dense(), weight_.dense().requires_grad());
  if (bias_.defined()) register_parameter("bias", bias_, bias_.requires_grad());
}

namespace {

at::Tensor xavier(int64_t out, int64_t in) {
  const double bound = std::sqrt(6.0 / static_cast<double>(in + out));
  return at::empty({out, in}, at::kFloat).uniform_(-bound, bound).requires_grad_();
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, bool bias)
    : Linear(Weight(xavier(out, in)), bias ? at::zeros({out}, at::kFloat).requires_grad_() : at::Tensor()) {}

Norm::Norm(kernel::NormForm kind, double epsilon, int64_t width)
    : Norm(kind, epsilon, at::ones({width}, at::kFloat).requires_grad_(),
           kind == kernel::NormForm::rms ? at::Tensor() : at::zeros({width}, at::kFloat).requires_grad_()) {}

Norm::Norm(kernel::NormForm kind, double epsilon, at::Tensor weight, at::Tensor bias)
    : kind_(kind), epsilon_(epsilon), weight_(std::move(weight)), bias_(std::move(bias)) {
  register_parameter("weight", weight_, weight_.requires_grad());
  if (bias_.defined()) register_parameter("bias", bias_, bias_.requires_grad());
}

// One way for all float32, trained or not: a layer that is computed twice must give the same bits.
at::Tensor Norm::forward(const at::Tensor& x) const {
  if (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble || kind_ == kernel::NormForm::harvard) {
    return autograd::normalize(kind_, x, weight_, bias_, epsilon_);
  }
  const std::vector<int64_t> axis = {weight_.size(0)};
  if (kind_ == kernel::NormForm::rms) return at::rms_norm(x, axis, weight_, epsilon_);
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

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, double alpha) {
  return gate * at::sigmoid(alpha * gate) * up;
}

int64_t swiglu_hidden(int64_t width, double multiplier, int64_t multiple_of) {
  const auto hidden = static_cast<int64_t>(multiplier * static_cast<double>(2 * 4 * width / 3));
  return (hidden + multiple_of - 1) / multiple_of * multiple_of;
}

FeedForward::FeedForward(Activation activation, int64_t width, int64_t hidden, bool gated)
    : FeedForward(activation, std::make_shared<Linear>(width, hidden, !gated),
                  std::make_shared<Linear>(hidden, width, !gated),
                  gated ? std::make_shared<Linear>(width, hidden, false) : nullptr) {}

FeedForward::FeedForward(Activation activation, std::shared_ptr<Linear> up, std::shared_ptr<Linear> down,
                         std::shared_ptr<Linear> gate, double dropout)
    : activation_(activation),
      dropout_(dropout),
      up_(std::move(up)),
      down_(std::move(down)),
      gate_(std::move(gate)) {
  register_module("up", up_);
  register_module("down", down_);
  if (gate_) register_module("gate", gate_);
}

FeedForward::FeedForward(Activation activation, GateUp gate_up, std::shared_ptr<Linear> down)
    : activation_(activation), down_(std::move(down)), gate_up_(std::move(gate_up.linear)) {
  register_module("down", down_);
  register_module("gate_up", gate_up_);
}

// [..., 2 inner] -> activation(first half) * second half.
at::Tensor FeedForward::gated(const at::Tensor& both) const {
  const int64_t inner = both.size(-1) / 2;
  if (activation_ == Activation::silu && both.scalar_type() == at::kFloat) return autograd::gated_silu(both);
  return activate(activation_, both.narrow(-1, 0, inner)) * both.narrow(-1, inner, inner);
}

at::Tensor FeedForward::forward(const at::Tensor& x, Context* context) const {
  const auto down = [&](const at::Tensor& inner) {
    return down_->forward(context != nullptr && dropout_ > 0 ? dropout(inner, dropout_, *context) : inner);
  };
  if (gate_up_) return down(gated(gate_up_->forward(x)));
  if (!gate_ && activation_ == Activation::gelu) return down(up_->forward(x, kernel::Epilogue::gelu));
  if (!gate_) return down(activate(activation_, up_->forward(x)));
  return down(activate(activation_, gate_->forward(x)) * up_->forward(x));
}

}  // namespace regard::layer
