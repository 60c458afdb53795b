#include "regard/layer/checkpoint.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <utility>

#include "regard/autograd/second_derivative.h"

namespace regard::layer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Travels through IValue as a capsule.
struct Held : torch::CustomClassHolder {
  explicit Held(Recomputed again) : again(std::move(again)) {}
  Recomputed again;
};

struct CheckpointFunction : torch::autograd::Function<CheckpointFunction> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs, const Recomputed* run,
                               const c10::intrusive_ptr<Held>& held) {
    context->save_for_backward(inputs.vec());
    context->saved_data["again"] = c10::IValue::make_capsule(held);
    return (*run)(inputs.vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    autograd::refuse_second_derivative("checkpoint");
    variable_list inputs;
    for (const at::Tensor& saved : context->get_saved_variables())
      inputs.push_back(saved.detach().requires_grad_(saved.requires_grad()));
    const c10::intrusive_ptr<torch::CustomClassHolder> capsule = context->saved_data["again"].toCapsule();
    variable_list results;
    {
      const at::AutoGradMode grad(true);
      results = static_cast<const Held&>(*capsule).again(inputs);
    }
    variable_list from, arriving;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!grads[i].defined() || !results[i].requires_grad()) continue;
      from.push_back(results[i]);
      arriving.push_back(grads[i]);
    }
    // Gradients of parameters go to the parameters themselves.
    if (!from.empty()) torch::autograd::backward(from, arriving);
    variable_list found;
    for (const at::Tensor& input : inputs) found.push_back(input.grad());
    found.resize(inputs.size() + 2);  // run and again have none
    return found;
  }
};

}  // namespace

std::vector<at::Tensor> checkpoint(const std::vector<at::Tensor>& inputs, const Recomputed& run,
                                   Recomputed again) {
  const bool wanted = at::GradMode::is_enabled() &&
                      std::ranges::any_of(inputs, [](const at::Tensor& x) { return x.requires_grad(); });
  if (!wanted) return run(inputs);
  return CheckpointFunction::apply(at::TensorList(inputs), &run, c10::make_intrusive<Held>(std::move(again)));
}

}  // namespace regard::layer
