#include "regard/train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <stdexcept>
#include <unordered_map>

#include "regard/autograd/parallel.h"
#include "regard/kernel/adam.h"
#include "regard/train/names.h"

namespace regard::train {
namespace {

constexpr Name<OptimizerOptions::Kind> kKinds[] = {{"adamw", OptimizerOptions::Kind::adamw},
                                                   {"adam", OptimizerOptions::Kind::adam},
                                                   {"sgd", OptimizerOptions::Kind::sgd}};

}  // namespace

OptimizerOptions::Kind optimizer_named(const std::string& name) {
  return kind_named("optimizer", name, kKinds);
}

// One parameter and what is remembered of it.
struct Optimizer::Slot {
  Parameters::Named parameter;
  int64_t steps = 0;
  at::Tensor first, second;  // adam: exp_avg, exp_avg_sq; sgd: momentum_buffer, nothing
};

Optimizer::Optimizer(const OptimizerOptions& options, const std::vector<Parameters::Named>& parameters)
    : options_(options) {
  for (const Parameters::Named& named : parameters) {
    if (named.value.scalar_type() != at::kFloat || !named.value.is_contiguous()) {
      throw std::invalid_argument("Optimizer: the parameter " + named.name +
                                  " must be float32 and contiguous");
    }
    slots_.push_back({.parameter = named, .steps = 0, .first = {}, .second = {}});
  }
}

Optimizer::~Optimizer() = default;

void Optimizer::zero_gradients() {
  scale_ = 1;
  for (const Slot& slot : slots_) slot.parameter.value.mutable_grad() = at::Tensor();
}

double Optimizer::clip(double limit) {
  std::vector<kernel::ConstSpan> spans;
  for (const Slot& slot : slots_) {
    at::Tensor& gradient = slot.parameter.value.mutable_grad();
    if (!gradient.defined()) continue;
    gradient = gradient.contiguous();
    spans.push_back({gradient.const_data_ptr<float>(), gradient.numel()});
  }
  const double norm = std::sqrt(kernel::sum_of_squares(spans, autograd::at_parallel()));
  scale_ = limit > 0 && norm > limit ? limit / norm : 1.0;
  return norm;
}

void Optimizer::step(double rate) {
  const at::NoGradGuard no_grad;
  if (options_.kind == OptimizerOptions::Kind::sgd) {
    for (Slot& slot : slots_) step_plainly(slot, rate);
    return;
  }
  std::vector<kernel::AdamSpan> spans;
  for (Slot& slot : slots_) {
    at::Tensor& value = slot.parameter.value;
    at::Tensor& gradient = value.mutable_grad();
    if (!gradient.defined()) continue;
    gradient = gradient.contiguous();
    if (!slot.first.defined()) {
      slot.first = at::zeros_like(value);
      slot.second = at::zeros_like(value);
    }
    ++slot.steps;
    const auto done = static_cast<double>(slot.steps);
    const double decay = value.dim() > 1 ? options_.weight_decay : 0.0;
    const bool coupled = options_.kind == OptimizerOptions::Kind::adam;
    kernel::AdamStep how;
    how.scale = static_cast<float>(scale_);
    how.coupled_decay = coupled ? static_cast<float>(decay) : 0.0F;
    how.keep = coupled ? 1.0F : static_cast<float>(1 - rate * decay);
    how.beta1 = static_cast<float>(options_.beta1);
    how.rest1 = static_cast<float>(1 - options_.beta1);
    how.beta2 = static_cast<float>(options_.beta2);
    how.rest2 = static_cast<float>(1 - options_.beta2);
    how.step = static_cast<float>(rate / (1 - std::pow(options_.beta1, done)));
    how.root = static_cast<float>(std::sqrt(1 - std::pow(options_.beta2, done)));
    how.epsilon = static_cast<float>(options_.epsilon);
    spans.push_back({.how = how,
                     .value = value.mutable_data_ptr<float>(),
                     .gradient = gradient.const_data_ptr<float>(),
                     .first = slot.first.mutable_data_ptr<float>(),
                     .second = slot.second.mutable_data_ptr<float>(),
                     .n = value.numel()});
  }
  kernel::adam(spans, autograd::at_parallel());
}

void Optimizer::step_plainly(Slot& slot, double rate) const {
  const at::Tensor& value = slot.parameter.value;
  if (!value.grad().defined()) return;
  at::Tensor change = value.grad();
  if (scale_ != 1) change = change * scale_;
  if (value.dim() > 1 && options_.weight_decay > 0) change = change.add(value, options_.weight_decay);
  if (options_.momentum > 0) {
    slot.first = slot.first.defined() ? slot.first.mul_(options_.momentum).add_(change) : change.clone();
    change = slot.first;
  }
  ++slot.steps;
  slot.parameter.value.sub_(change, rate);
}

std::vector<Parameters::Named> Optimizer::state() const {
  std::vector<Parameters::Named> out;
  for (const Slot& slot : slots_) {
    if (!slot.first.defined()) continue;
    const std::string& name = slot.parameter.name;
    if (options_.kind == OptimizerOptions::Kind::sgd) {
      out.push_back({name + "/momentum_buffer", slot.first});
      continue;
    }
    out.push_back({name + "/step", at::full({1}, slot.steps, at::kLong)});
    out.push_back({name + "/exp_avg", slot.first});
    out.push_back({name + "/exp_avg_sq", slot.second});
  }
  return out;
}

void Optimizer::restore(const std::vector<Parameters::Named>& state) {
  std::unordered_map<std::string, at::Tensor> by_name;
  for (const Parameters::Named& named : state) by_name.emplace(named.name, named.value);
  const bool adaptive = options_.kind != OptimizerOptions::Kind::sgd;
  for (Slot& slot : slots_) {
    const Parameters::Named& named = slot.parameter;
    slot.first = slot.second = at::Tensor();
    slot.steps = 0;
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
    if (by_name.count(named.name + (adaptive ? "/step" : "/momentum_buffer")) == 0) continue;
    if (!adaptive) {
      slot.first = find("momentum_buffer").clone();
      continue;
    }
    slot.steps = find("step").item<int64_t>();
    slot.first = find("exp_avg").clone();
    slot.second = find("exp_avg_sq").clone();
  }
}

}  // namespace regard::train
