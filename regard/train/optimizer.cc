#include "regard/train/optimizer.h"

#include <ATen/ATen.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>
#include <unordered_map>

#include "regard/train/names.h"

namespace regard::train {
namespace {

constexpr Name<OptimizerOptions::Kind> kKinds[] = {{"adamw", OptimizerOptions::Kind::adamw},
                                                   {"adam", OptimizerOptions::Kind::adam},
                                                   {"sgd", OptimizerOptions::Kind::sgd}};

using torch::optim::OptimizerParamGroup;
using Groups = std::vector<OptimizerParamGroup>;

// Adam and AdamW keep the same numbers in types of their own.
template <class State>
void append_adam(const std::string& name, const State& state, std::vector<Parameters::Named>& out) {
  out.push_back({name + "/step", at::full({1}, state.step(), at::kLong)});
  out.push_back({name + "/exp_avg", state.exp_avg()});
  out.push_back({name + "/exp_avg_sq", state.exp_avg_sq()});
}

template <class State, class Find>
std::unique_ptr<torch::optim::OptimizerParamState> adam_from(const Find& find) {
  auto state = std::make_unique<State>();
  state->step(find("step").template item<int64_t>());
  state->exp_avg(find("exp_avg").clone());
  state->exp_avg_sq(find("exp_avg_sq").clone());
  return state;
}

}  // namespace

OptimizerOptions::Kind optimizer_named(const std::string& name) {
  return kind_named("optimizer", name, kKinds);
}

struct Optimizer::Inside {
  OptimizerOptions options;
  std::vector<Parameters::Named> parameters;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

Optimizer::Optimizer(const OptimizerOptions& options, const std::vector<Parameters::Named>& parameters)
    : inside_(std::make_unique<Inside>()) {
  inside_->options = options;
  inside_->parameters = parameters;
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> vectors;
  for (const Parameters::Named& named : parameters)
    (named.value.dim() > 1 ? matrices : vectors).push_back(named.value);
  // The rate is set at each step.
  const auto groups = [&]<class Options>(Options decayed) {
    Options plain = decayed;
    plain.weight_decay(0.0);
    Groups out;
    out.emplace_back(matrices, std::make_unique<Options>(decayed));
    out.emplace_back(vectors, std::make_unique<Options>(plain));
    return out;
  };
  const auto betas = std::make_tuple(options.beta1, options.beta2);
  switch (options.kind) {
    case OptimizerOptions::Kind::adamw: {
      torch::optim::AdamWOptions of(0.0);
      of.betas(betas).eps(options.epsilon).weight_decay(options.weight_decay);
      inside_->optimizer = std::make_unique<torch::optim::AdamW>(groups(of), of);
      break;
    }
    case OptimizerOptions::Kind::adam: {
      torch::optim::AdamOptions of(0.0);
      of.betas(betas).eps(options.epsilon).weight_decay(options.weight_decay);
      inside_->optimizer = std::make_unique<torch::optim::Adam>(groups(of), of);
      break;
    }
    case OptimizerOptions::Kind::sgd: {
      torch::optim::SGDOptions of(0.0);
      of.momentum(options.momentum).weight_decay(options.weight_decay);
      inside_->optimizer = std::make_unique<torch::optim::SGD>(groups(of), of);
      break;
    }
  }
}

Optimizer::~Optimizer() = default;

void Optimizer::zero_gradients() {
  inside_->optimizer->zero_grad();
}

double Optimizer::clip(double limit) {
  double squares = 0;
  for (const Parameters::Named& named : inside_->parameters) {
    if (!named.value.grad().defined()) continue;
    const auto norm = named.value.grad().norm().item<double>();
    squares += norm * norm;
  }
  const double norm = std::sqrt(squares);
  if (limit > 0 && norm > limit) {
    for (const Parameters::Named& named : inside_->parameters) {
      if (named.value.grad().defined()) named.value.mutable_grad().mul_(limit / norm);
    }
  }
  return norm;
}

void Optimizer::step(double rate) {
  for (OptimizerParamGroup& group : inside_->optimizer->param_groups()) group.options().set_lr(rate);
  inside_->optimizer->step();
}

std::vector<Parameters::Named> Optimizer::state() const {
  std::vector<Parameters::Named> out;
  const auto& states = inside_->optimizer->state();
  for (const Parameters::Named& named : inside_->parameters) {
    const auto found = states.find(named.value.unsafeGetTensorImpl());
    if (found == states.end()) continue;
    switch (inside_->options.kind) {
      case OptimizerOptions::Kind::adamw:
        append_adam(named.name, static_cast<const torch::optim::AdamWParamState&>(*found->second), out);
        break;
      case OptimizerOptions::Kind::adam:
        append_adam(named.name, static_cast<const torch::optim::AdamParamState&>(*found->second), out);
        break;
      case OptimizerOptions::Kind::sgd: {
        const auto& state = static_cast<const torch::optim::SGDParamState&>(*found->second);
        if (state.momentum_buffer().defined())
          out.push_back({named.name + "/momentum_buffer", state.momentum_buffer()});
        break;
      }
    }
  }
  return out;
}

void Optimizer::restore(const std::vector<Parameters::Named>& state) {
  std::unordered_map<std::string, at::Tensor> by_name;
  for (const Parameters::Named& named : state) by_name.emplace(named.name, named.value);
  auto& states = inside_->optimizer->state();
  states.clear();
  for (const Parameters::Named& named : inside_->parameters) {
    const auto find = [&](const char* part) {
      const auto found = by_name.find(named.name + "/" + part);
      if (found == by_name.end())
        throw std::invalid_argument("the state of the optimizer lacks " + named.name + "/" + part);
      if (std::string(part) != "step" && found->second.sizes() != named.value.sizes()) {
        throw std::invalid_argument("the state of the optimizer has another shape for " + named.name + "/" +
                                    part);
      }
      return found->second;
    };
    void* key = named.value.unsafeGetTensorImpl();
    const bool adaptive = inside_->options.kind != OptimizerOptions::Kind::sgd;
    if (by_name.count(named.name + (adaptive ? "/step" : "/momentum_buffer")) == 0) continue;
    switch (inside_->options.kind) {
      case OptimizerOptions::Kind::adamw:
        states[key] = adam_from<torch::optim::AdamWParamState>(find);
        break;
      case OptimizerOptions::Kind::adam:
        states[key] = adam_from<torch::optim::AdamParamState>(find);
        break;
      case OptimizerOptions::Kind::sgd: {
        auto one = std::make_unique<torch::optim::SGDParamState>();
        one->momentum_buffer(find("momentum_buffer").clone());
        states[key] = std::move(one);
        break;
      }
    }
  }
}

}  // namespace regard::train
