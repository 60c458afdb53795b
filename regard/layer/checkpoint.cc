#include "regard/layer/checkpoint.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

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
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const Recomputed* run,
                               const c10::intrusive_ptr<Held>& held) {
    context->save_for_backward({x});
    context->saved_data["again"] = c10::IValue::make_capsule(held);
    return (*run)(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    autograd::refuse_second_derivative("checkpoint");
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const c10::intrusive_ptr<torch::CustomClassHolder> capsule = context->saved_data["again"].toCapsule();
    variable_list results;
    {
      const at::AutoGradMode grad(true);
      results = static_cast<const Held&>(*capsule).again(x);
    }
    variable_list from, arriving;
    for (size_t i = 0; i < results.size(); ++i) {
      if (!grads[i].defined() || !results[i].requires_grad()) continue;
      from.push_back(results[i]);
      arriving.push_back(grads[i]);
    }
    // Gradients of parameters go to the parameters themselves.
    if (!from.empty()) torch::autograd::backward(from, arriving);
    return {x.grad(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

std::vector<at::Tensor> checkpoint(const at::Tensor& x, const Recomputed& run, Recomputed again) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return run(x);
  return CheckpointFunction::apply(x, &run, c10::make_intrusive<Held>(std::move(again)));
}

}  // namespace regard::layer
