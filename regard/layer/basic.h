#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "regard/layer/weight.h"

// The small parts of a transformer block. All compute in float32 and are modules of libtorch, so that their
// dense parameters can be listed, trained and saved like any other's.
namespace regard::layer {

// y = x W^T + b; the bias may be undefined.
class Linear : public torch::nn::Module {
 public:
  explicit Linear(Weight weight, at::Tensor bias = {});
  at::Tensor forward(const at::Tensor& x) const { return weight_.linear(x, bias_); }
  const Weight& weight() const { return weight_; }

 private:
  Weight weight_;
  at::Tensor bias_;
};

// layer: (x - mean) / sqrt(variance + epsilon) * weight + bias. rms: x / sqrt(mean(x^2) + epsilon) * weight.
enum class NormKind : uint8_t { layer, rms };

// Over the last axis.
class Norm : public torch::nn::Module {
 public:
  Norm(NormKind kind, double epsilon, at::Tensor weight, at::Tensor bias = {});
  at::Tensor forward(const at::Tensor& x) const;

 private:
  NormKind kind_;
  double epsilon_;
  at::Tensor weight_;
  at::Tensor bias_;
};

// gelu is the exact form (erf), gelu_tanh its approximation.
enum class Activation : uint8_t { gelu, gelu_tanh, silu, relu };

at::Tensor activate(Activation activation, const at::Tensor& x);

// down(activation(up(x))); with a gate (SwiGLU): down(activation(gate(x)) * up(x)).
class FeedForward : public torch::nn::Module {
 public:
  FeedForward(Activation activation, std::shared_ptr<Linear> up, std::shared_ptr<Linear> down,
              std::shared_ptr<Linear> gate = nullptr);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  Activation activation_;
  std::shared_ptr<Linear> up_, down_, gate_;
};

}  // namespace regard::layer
