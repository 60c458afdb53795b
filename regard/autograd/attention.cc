#include "regard/autograd/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <stdexcept>
#include <vector>

#include "regard/attention/attention.h"
#include "regard/attention/reference.h"
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

struct Output {
  at::Tensor out;
  at::Tensor lse;
};

Output forward(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
               const AttentionExtras& extras, bool with_lse) {
  attention::Operands call = operands(q, k, v, extras);
  // Joining the heads of [B, L, H, D] is a view.
  Output result{at::empty({q.size(0), q.size(2), q.size(1), v.size(3)}, q.options()).transpose(1, 2), {}};
  call.out = mutable_view(result.out, "out");
  if (with_lse) {
    result.lse = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    call.lse = lse_view(result.lse);
  }
  attention::attention(spec, call, at_parallel());
  return result;
}

std::vector<double> to_doubles(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kDouble).contiguous();
  const double* data = flat.const_data_ptr<double>();
  return {data, data + flat.numel()};
}

at::Tensor from_doubles(std::vector<double>& values, at::IntArrayRef shape) {
  return at::from_blob(values.data(), shape, at::TensorOptions().dtype(at::kDouble)).clone();
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static variable_list forward(AutogradContext* context, const attention::Spec& spec, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v,
                               const std::optional<at::Tensor>& /*bias*/,
                               const std::optional<at::Tensor>& /*sinks*/, const AttentionExtras& extras) {
    Output result = autograd::forward(spec, q, k, v, extras, true);
    context->save_for_backward(
        {q, k, v, extras.bias, extras.sinks, extras.slopes, extras.dense_mask, extras.key_lengths});
    context->saved_data["spec"] = c10::IValue::make_capsule(c10::make_intrusive<SpecHolder>(spec));
    return {result.out, result.lse};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    if (at::GradMode::is_enabled()) {
      throw std::invalid_argument(
          "attention: second derivatives are not available (create_graph = true); only first ones are");
    }
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &bias = saved[3], &sinks = saved[4];
    const c10::intrusive_ptr<torch::CustomClassHolder> capsule = context->saved_data["spec"].toCapsule();
    const attention::Spec& spec = static_cast<const SpecHolder&>(*capsule).spec;
    const AttentionExtras extras{bias, saved[5], sinks, saved[6], saved[7]};
    const attention::Operands call = operands(q, k, v, extras);
    const std::vector<int64_t> out_shape = {q.size(0), q.size(1), q.size(2), v.size(3)};
    attention::ReferenceGradients gradients = attention::reference_backward(
        spec, call,
        grads[0].defined() ? to_doubles(grads[0])
                           : std::vector<double>(static_cast<size_t>(c10::multiply_integers(out_shape))),
        grads[1].defined() ? to_doubles(grads[1]) : std::vector<double>());
    // Gradients of Function's arguments: spec, q, k, v, bias, sinks, extras.
    variable_list result(7);
    result[1] = from_doubles(gradients.q, q.sizes()).to(q.scalar_type());
    result[2] = from_doubles(gradients.k, k.sizes()).to(k.scalar_type());
    result[3] = from_doubles(gradients.v, v.sizes()).to(v.scalar_type());
    if (bias.defined() && context->needs_input_grad(3)) {
      const at::Tensor full = from_doubles(gradients.bias, {q.size(0), q.size(1), q.size(2), k.size(2)});
      result[4] = at::sum_to(full, bias.sizes()).to(bias.scalar_type());
    }
    if (sinks.defined() && context->needs_input_grad(bias.defined() ? 4 : 3)) {
      const at::Tensor full = from_doubles(gradients.sinks, {q.size(0), q.size(1)});
      result[5] = at::sum_to(full, sinks.sizes()).to(sinks.scalar_type());
    }
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
  return call;
}

at::Tensor attention(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, const AttentionExtras& extras, at::Tensor* lse) {
  if (at::GradMode::is_enabled()) {
    if (wants_gradient(extras.slopes)) {
      throw std::invalid_argument("attention: slopes require a gradient; none flows to ALiBi slopes");
    }
    if (wants_gradient(q) || wants_gradient(k) || wants_gradient(v) || wants_gradient(extras.bias) ||
        wants_gradient(extras.sinks)) {
      const variable_list result =
          AttentionFunction::apply(spec, q, k, v, given(extras.bias), given(extras.sinks), extras);
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
