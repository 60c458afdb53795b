// The optimisers against libtorch's own over many steps.
#include "regard/train/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <memory>

namespace regard::train {
namespace {

struct Pair {
  std::vector<Parameters::Named> ours;
  std::vector<at::Tensor> matrices, vectors;  // the peer's
};

Pair make_parameters() {
  at::manual_seed(1);
  Pair out;
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{33, 7}, {5}, {2, 3, 4}}) {
    const at::Tensor value = at::randn(shape);
    out.ours.push_back({"p" + std::to_string(out.ours.size()), value.clone().requires_grad_()});
    (shape.size() > 1 ? out.matrices : out.vectors).push_back(value.clone().requires_grad_());
  }
  return out;
}

// To be given with defaults that do not decay: libtorch takes a group's value that is the class's default for
// one that was not set.
template <class Options>
std::vector<torch::optim::OptimizerParamGroup> groups(const Pair& pair, Options decayed) {
  Options plain = decayed;
  plain.weight_decay(0.0);
  std::vector<torch::optim::OptimizerParamGroup> out;
  out.emplace_back(pair.matrices, std::make_unique<Options>(decayed));
  out.emplace_back(pair.vectors, std::make_unique<Options>(plain));
  return out;
}

// Twenty steps of both under gradients of very different sizes, clipped.
void expect_equal(Pair pair, torch::optim::Optimizer& peer, const OptimizerOptions& options,
                  double tolerance) {
  Optimizer ours(options, pair.ours);
  std::vector<at::Tensor> peers = {pair.matrices[0], pair.vectors[0], pair.matrices[1]};
  for (int step = 0; step < 20; ++step) {
    ours.zero_gradients();
    double squares = 0;
    for (size_t i = 0; i < peers.size(); ++i) {
      const at::Tensor gradient = at::randn(peers[i].sizes()) * std::pow(10.0, step % 4 - 2);
      pair.ours[i].value.mutable_grad() = gradient.clone();
      peers[i].mutable_grad() = gradient;
      squares += gradient.square().sum().item<double>();
    }
    const double norm = std::sqrt(squares);
    EXPECT_NEAR(ours.clip(3.0), norm, 1e-5 * norm);
    if (norm > 3)
      for (const at::Tensor& value : peers) value.mutable_grad().mul_(3 / norm);
    const double rate = 0.01 * (1 + step % 3);
    for (auto& group : peer.param_groups()) group.options().set_lr(rate);
    ours.step(rate);
    peer.step();
  }
  for (size_t i = 0; i < peers.size(); ++i)
    EXPECT_LE((pair.ours[i].value - peers[i]).abs().max().item<double>(), tolerance) << i;
}

TEST(Optimizer, AdamWIsLibtorchs) {
  const Pair pair = make_parameters();
  torch::optim::AdamWOptions of(0.0);
  of.betas(std::make_tuple(0.9, 0.99)).eps(1e-8).weight_decay(0.1);
  torch::optim::AdamW peer(groups(pair, of), of);
  expect_equal(pair, peer, {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1}, 1e-5);
}

TEST(Optimizer, AdamIsLibtorchs) {
  const Pair pair = make_parameters();
  torch::optim::AdamOptions of(0.0);
  of.betas(std::make_tuple(0.8, 0.999)).eps(1e-6).weight_decay(0.1);
  torch::optim::Adam peer(groups(pair, of), torch::optim::AdamOptions(of).weight_decay(0.0));
  expect_equal(pair, peer,
               {.kind = OptimizerOptions::Kind::adam, .beta1 = 0.8, .epsilon = 1e-6, .weight_decay = 0.1},
               1e-5);
}

TEST(Optimizer, SgdWithMomentumIsLibtorchs) {
  for (const double momentum : {0.0, 0.9}) {
    const Pair pair = make_parameters();
    torch::optim::SGDOptions of(0.0);
    of.momentum(momentum).weight_decay(0.1);
    torch::optim::SGD peer(groups(pair, of), torch::optim::SGDOptions(of).weight_decay(0.0));
    expect_equal(pair, peer, {.kind = OptimizerOptions::Kind::sgd, .weight_decay = 0.1, .momentum = momentum},
                 1e-5);
  }
}

TEST(Optimizer, AParameterWithoutAGradientStays) {
  Pair pair = make_parameters();
  const at::Tensor before = pair.ours[0].value.detach().clone();
  Optimizer optimizer({.weight_decay = 0.5}, pair.ours);
  pair.ours[1].value.mutable_grad() = at::ones({5});
  optimizer.clip(0);
  optimizer.step(0.1);
  EXPECT_TRUE(at::equal(pair.ours[0].value, before));
  EXPECT_EQ(optimizer.state().size(), 3u);  // step and two moments of the one that moved
}

}  // namespace
}  // namespace regard::train
