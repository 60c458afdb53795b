#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "regard/kernel/norm.h"
#include "regard/layer/context.h"
#include "regard/layer/options.h"
#include "regard/layer/weight.h"

// The small parts of a transformer block. All compute in float32 and are modules of libtorch, so that their
// dense parameters can be listed, trained and saved like any other's.
namespace regard::layer {

// y = x W^T + b; the bias may be undefined.
class Linear : public torch::nn::Module {
 public:
  explicit Linear(Weight weight, at::Tensor bias = {});
  // To be trained: Xavier uniform weight (Glorot and Bengio 2010), bias 0.
  Linear(int64_t in, int64_t out, bool bias = true);
  at::Tensor forward(const at::Tensor& x, kernel::Epilogue epilogue = kernel::Epilogue::none) const {
    return weight_.linear(x, bias_, epilogue);
  }
  const Weight& weight() const { return weight_; }

 private:
  Weight weight_;
  at::Tensor bias_;
};

// Over the last axis, by autograd::normalize(): sums over rows have an order.
class Norm : public torch::nn::Module {
 public:
  Norm(kernel::NormForm kind, double epsilon, at::Tensor weight, at::Tensor bias = {});
  // To be trained: weight 1 and, unless rms, bias 0.
  Norm(kernel::NormForm kind, double epsilon, int64_t width);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  kernel::NormForm kind_;
  double epsilon_;
  at::Tensor weight_;
  at::Tensor bias_;
};

at::Tensor activate(Activation activation, const at::Tensor& x);

// gate sigmoid(alpha gate) up: the product inside SwiGLU; alpha is 1 there.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, double alpha = 1.0);

// Llama's hidden width for a gated feed-forward: 2/3 of 4 width, times `multiplier`, rounded up to a
// multiple.
int64_t swiglu_hidden(int64_t width, double multiplier, int64_t multiple_of);

// down(activation(up(x))); with a gate (SwiGLU): down(activation(gate(x)) * up(x)).
// SwiGLU is silu, GeGLU is gelu (Shazeer 2020, arXiv 2002.05202).
class FeedForward : public torch::nn::Module {
 public:
  // The gate's rows above those of up: one product for both.
  struct GateUp {
    std::shared_ptr<Linear> linear;
  };
  FeedForward(Activation activation, GateUp gate_up, std::shared_ptr<Linear> down);
  // dropout: of what down() takes, in training.
  FeedForward(Activation activation, std::shared_ptr<Linear> up, std::shared_ptr<Linear> down,
              std::shared_ptr<Linear> gate = nullptr, double dropout = 0);
  // To be trained: from width to hidden and back, without biases where it is gated.
  FeedForward(Activation activation, int64_t width, int64_t hidden, bool gated);
  // context: for dropout; null: none.
  at::Tensor forward(const at::Tensor& x, Context* context = nullptr) const;

 private:
  at::Tensor gated(const at::Tensor& both) const;

  Activation activation_;
  double dropout_ = 0;
  std::shared_ptr<Linear> up_, down_, gate_, gate_up_;
};

}  // namespace regard::layer
