#include "regard/autograd/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <stdexcept>
#include <vector>

#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "regard/autograd/parallel.h"
#include "regard/autograd/views.h"

namespace regard::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Spec travels through IValue as a capsule.
struct SpecHolder : torch::CustomClassHolder {
  explicit SpecHolder(attention::Spec spec) : spec(std::move(spec)) {}
  attention::Spec spec;
};

// [B, H, L, D] whose heads join without a copy, as projections leave their results.
at::Tensor empty_heads(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return at::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, options).transpose(1, 2);
}

struct Output {
  at::Tensor out;
  at::Tensor lse;
};

Output forward(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
               const AttentionExtras& extras, bool with_lse) {
  attention::Operands call = operands(q, k, v, extras);
  Output result{empty_heads({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options()), {}};
  call.out = mutable_view(result.out, "out");
  if (with_lse) {
    result.lse = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    call.lse = lse_view(result.lse);
  }
  attention::attention(spec, call, at_parallel());
  return result;
}

// grad_lse [B, Hq, Lq] as the kernels take it.
attention::View<const float> grad_lse_view(const at::Tensor& grad) {
  return grad.defined() ? const_lse_view(grad) : attention::View<const float>();
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static variable_list forward(AutogradContext* context, const attention::Spec& spec, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v,
                               const std::optional<at::Tensor>& /*bias*/,
                               const std::optional<at::Tensor>& /*slopes*/,
                               const std::optional<at::Tensor>& /*sinks*/, const AttentionExtras& extras) {
    Output result = autograd::forward(spec, q, k, v, extras, true);
    context->save_for_backward({q, k, v, result.out, result.lse, extras.bias, extras.slopes, extras.sinks,
                                extras.dense_mask, extras.key_lengths});
    context->saved_data["spec"] = c10::IValue::make_capsule(c10::make_intrusive<SpecHolder>(spec));
    context->saved_data["seed"] = static_cast<int64_t>(extras.dropout_seed);
    context->saved_data["offset"] = static_cast<int64_t>(extras.dropout_offset);
    return {result.out, result.lse};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    if (at::GradMode::is_enabled()) {
      throw std::invalid_argument(
          "attention: second derivatives are not available (create_graph = true); only first ones are");
    }
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    AttentionExtras extras{saved[5], saved[6], saved[7], saved[8], saved[9]};
    extras.dropout_seed = static_cast<uint64_t>(context->saved_data["seed"].toInt());
    extras.dropout_offset = static_cast<uint64_t>(context->saved_data["offset"].toInt());
    const c10::intrusive_ptr<torch::CustomClassHolder> capsule = context->saved_data["spec"].toCapsule();
    const attention::Spec& spec = static_cast<const SpecHolder&>(*capsule).spec;
    attention::Operands call = operands(q, k, v, extras);
    call.out = mutable_view(saved[3], "out");
    call.lse = lse_view(saved[4]);
    const at::Tensor grad_out =
        grads[0].defined() ? grads[0] : at::zeros({}, q.options()).expand(saved[3].sizes());

    // In the order of forward()'s arguments; absent ones take part in neither numbering.
    variable_list result(8);
    attention::Gradients wanted;
    size_t edge = 0;
    const auto want = [&](const at::Tensor& input, size_t argument) {
      if (!input.defined() || !context->needs_input_grad(edge++)) return at::Tensor();
      return result[argument] =
                 argument <= 3 ? empty_heads(input.sizes(), input.options()) : at::empty_like(input);
    };
    if (const at::Tensor grad = want(q, 1); grad.defined()) wanted.q = mutable_view(grad, "q");
    if (const at::Tensor grad = want(k, 2); grad.defined()) wanted.k = mutable_view(grad, "k");
    if (const at::Tensor grad = want(v, 3); grad.defined()) wanted.v = mutable_view(grad, "v");
    if (const at::Tensor grad = want(extras.bias, 4); grad.defined()) {
      wanted.bias = gradient_view(grad, {q.size(0), q.size(1), q.size(2), k.size(2)}, "bias");
    }
    if (const at::Tensor grad = want(extras.slopes, 5); grad.defined()) {
      wanted.slopes = per_head_gradient_view(grad, "slopes");
    }
    if (const at::Tensor grad = want(extras.sinks, 6); grad.defined()) {
      wanted.sinks = per_head_gradient_view(grad, "sinks");
    }
    attention::backward(spec, call, {const_view(grad_out, "grad_out"), grad_lse_view(grads[1])}, wanted,
                        at_parallel());
    return result;
  }
};

// Function's arguments may be absent, but not undefined tensors.
std::optional<at::Tensor> given(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

bool wants_gradient(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad();
}

}  // namespace

attention::Operands operands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionExtras& extras) {
  attention::Operands call;
  call.q = const_view(q, "q");
  call.k = const_view(k, "k");
  call.v = const_view(v, "v");
  const kernel::Extents square = {q.size(0), q.size(1), q.size(2), k.size(2)};
  if (extras.bias.defined()) call.bias = broadcast_view(extras.bias, square, "bias");
  if (extras.slopes.defined()) call.slopes = per_head_view(extras.slopes, "slopes");
  if (extras.sinks.defined()) call.sinks = per_head_view(extras.sinks, "sinks");
  if (extras.dense_mask.defined()) call.dense_mask = mask_view(extras.dense_mask, square, "dense_mask");
  if (extras.key_lengths.defined()) call.key_lengths = lengths_view(extras.key_lengths);
  call.dropout_seed = extras.dropout_seed;
  call.dropout_offset = extras.dropout_offset;
  return call;
}

at::Tensor attention(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, const AttentionExtras& extras, at::Tensor* lse) {
  if (at::GradMode::is_enabled()) {
    if (wants_gradient(q) || wants_gradient(k) || wants_gradient(v) || wants_gradient(extras.bias) ||
        wants_gradient(extras.slopes) || wants_gradient(extras.sinks)) {
      const variable_list result = AttentionFunction::apply(
          spec, q, k, v, given(extras.bias), given(extras.slopes), given(extras.sinks), extras);
      if (lse != nullptr) *lse = result[1];
      return result[0];
    }
  }
  Output result = forward(spec, q, k, v, extras, lse != nullptr);
  if (lse != nullptr) *lse = result.lse;
  return result.out;
}

at::Tensor weights(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k,
                   const at::Tensor& lse, int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key,
                   int64_t keys, const AttentionExtras& extras) {
  const at::NoGradGuard no_grad;
  // Weights do not depend on v; a view of k of the right shape stands in.
  const attention::Operands call = operands(q, k, k, extras);
  const std::vector<float> tile =
      attention::weights(spec, call, const_lse_view(lse), batch, head, row, rows, key, keys);
  at::Tensor result = at::empty({rows, keys}, at::kFloat);
  std::copy(tile.begin(), tile.end(), result.mutable_data_ptr<float>());
  return result;
}

}  // namespace regard::autograd
