#include "regard/autograd/structured.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>
#include <utility>

#include "regard/attention/additive.h"
#include "regard/autograd/parallel.h"
#include "regard/autograd/second_derivative.h"
#include "regard/autograd/views.h"

namespace regard::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Options travel through IValue as a capsule.
template <class T>
struct Holder : torch::CustomClassHolder {
  explicit Holder(T value) : value(std::move(value)) {}
  T value;
};
template <class T>
void keep(AutogradContext* context, const T& value) {
  context->saved_data["form"] = c10::IValue::make_capsule(c10::make_intrusive<Holder<T>>(value));
}
template <class T>
T kept(AutogradContext* context) {
  const c10::intrusive_ptr<torch::CustomClassHolder> capsule = context->saved_data["form"].toCapsule();
  return static_cast<const Holder<T>&>(*capsule).value;
}

kernel::View<float> f32_view(const at::Tensor& tensor, const char* name) {
  const kernel::AnyView view = mutable_view(tensor, name);
  if (view.dtype != kernel::DType::f32) {
    throw std::invalid_argument(std::string("attention: ") + name + " is not float32; it must be");
  }
  return view.as<float>();
}

// The results that a call fills.
struct Output {
  at::Tensor out, lse;

  Output(const at::Tensor& q, const at::Tensor& v)
      : out(at::empty({q.size(0), q.size(2), q.size(1), v.size(3)}, q.options()).transpose(1, 2)),
        lse(at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat))) {}

  void into(attention::Operands& call) const {
    call.out = mutable_view(out, "out");
    call.lse = lse_view(lse);
  }
};

// What arrives; owns what the views point at.
struct Incoming {
  at::Tensor out, lse;

  Incoming(const variable_list& grads, const at::Tensor& result)
      : out(grads[0].defined() ? grads[0] : at::zeros_like(result)), lse(grads[1]) {}
  attention::Arriving view() const {
    return {const_view(out, "grad_out"),
            lse.defined() ? const_lse_view(lse) : attention::View<const float>()};
  }
};

// [H, Da] or [1, Da] as [1, H, 1, Da].
kernel::View<float> vector_view(const at::Tensor& vector) {
  if (!vector.defined() || vector.dim() != 2 || vector.scalar_type() != at::kFloat ||
      !vector.device().is_cpu()) {
    throw std::invalid_argument(
        "additive_attention: vector must be float32 [heads or 1, hidden size] on the CPU");
  }
  return {vector.mutable_data_ptr<float>(),
          {1, vector.size(0), 1, vector.size(1)},
          {0, vector.stride(0), 0, vector.stride(1)}};
}

attention::Spec masked(const attention::Mask& mask) {
  attention::Spec spec;
  spec.mask = mask;
  return spec;
}

struct AdditiveFunction : torch::autograd::Function<AdditiveFunction> {
  static variable_list forward(AutogradContext* context, const attention::Mask& mask, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v, const at::Tensor& vector,
                               const AttentionExtras& extras) {
    const Output result(q, v);
    attention::Operands call = operands(q, k, v, extras);
    result.into(call);
    attention::additive_attention(masked(mask), call, vector_view(vector), at_parallel());
    context->save_for_backward(
        {q, k, v, vector, result.out, result.lse, extras.dense_mask, extras.key_lengths});
    keep(context, mask);
    return {result.out, result.lse};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("additive_attention");
    const variable_list saved = context->get_saved_variables();
    AttentionExtras extras;
    extras.dense_mask = saved[6];
    extras.key_lengths = saved[7];
    attention::Operands call = operands(saved[0], saved[1], saved[2], extras);
    call.out = mutable_view(saved[4], "out");
    call.lse = lse_view(saved[5]);
    const Incoming incoming(grads, saved[4]);
    variable_list result(6);
    for (size_t n = 0; n < 4; ++n)
      if (context->needs_input_grad(n)) result[n + 1] = at::empty(saved[n].sizes(), saved[n].options());
    attention::AdditiveGradients wanted;
    if (result[1].defined()) wanted.q = f32_view(result[1], "q");
    if (result[2].defined()) wanted.k = f32_view(result[2], "k");
    if (result[3].defined()) wanted.v = f32_view(result[3], "v");
    if (result[4].defined()) wanted.vector = vector_view(result[4]);
    attention::additive_backward(masked(kept<attention::Mask>(context)), call, vector_view(saved[3]),
                                 incoming.view(), wanted, at_parallel());
    return result;
  }
};

struct BlockFunction : torch::autograd::Function<BlockFunction> {
  static variable_list forward(AutogradContext* context, const attention::BlockAttentionOptions& options,
                               const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const Output result(q, v);
    attention::Operands call = operands(q, k, v);
    result.into(call);
    attention::block_attention(options, call, at_parallel());
    context->save_for_backward({q, k, v, result.out, result.lse});
    keep(context, options);
    return {result.out, result.lse};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("block_attention");
    const variable_list saved = context->get_saved_variables();
    attention::Operands call = operands(saved[0], saved[1], saved[2]);
    call.out = mutable_view(saved[3], "out");
    call.lse = lse_view(saved[4]);
    const Incoming incoming(grads, saved[3]);
    variable_list result(4);
    for (size_t n = 0; n < 3; ++n) result[n + 1] = at::empty(saved[n].sizes(), saved[n].options());
    attention::block_attention_backward(kept<attention::BlockAttentionOptions>(context), call,
                                        incoming.view(),
                                        {mutable_view(result[1], "q"),
                                         mutable_view(result[2], "k"),
                                         mutable_view(result[3], "v"),
                                         {},
                                         {},
                                         {}},
                                        at_parallel());
    return result;
  }
};

struct LshFunction : torch::autograd::Function<LshFunction> {
  static variable_list forward(AutogradContext* context, const attention::LshOptions& options,
                               const at::Tensor& q, const at::Tensor& v) {
    const Output result(q, v);
    attention::Operands call = operands(q, q, v);
    result.into(call);
    attention::lsh_attention(options, call, at_parallel());
    context->save_for_backward({q, v, result.out, result.lse});
    keep(context, options);
    return {result.out, result.lse};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("lsh_attention");
    const variable_list saved = context->get_saved_variables();
    attention::Operands call = operands(saved[0], saved[0], saved[1]);
    call.out = mutable_view(saved[2], "out");
    call.lse = lse_view(saved[3]);
    const Incoming incoming(grads, saved[2]);
    variable_list result(3);
    for (size_t n = 0; n < 2; ++n) result[n + 1] = at::empty(saved[n].sizes(), saved[n].options());
    attention::Gradients wanted;
    wanted.q = mutable_view(result[1], "q");
    wanted.v = mutable_view(result[2], "v");
    attention::lsh_attention_backward(kept<attention::LshOptions>(context), call, incoming.view(), wanted,
                                      at_parallel());
    return result;
  }
};

at::Tensor take(const variable_list& result, at::Tensor* lse) {
  if (lse != nullptr) *lse = result[1];
  return result[0];
}

}  // namespace

at::Tensor additive_attention(const attention::Mask& mask, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const at::Tensor& vector, const AttentionExtras& extras,
                              at::Tensor* lse) {
  return take(AdditiveFunction::apply(mask, q, k, v, vector, extras), lse);
}

at::Tensor block_attention(const attention::BlockAttentionOptions& options, const at::Tensor& q,
                           const at::Tensor& k, const at::Tensor& v, at::Tensor* lse) {
  return take(BlockFunction::apply(options, q, k, v), lse);
}

at::Tensor lsh_attention(const attention::LshOptions& options, const at::Tensor& q, const at::Tensor& v,
                         at::Tensor* lse) {
  return take(LshFunction::apply(options, q, v), lse);
}

}  // namespace regard::autograd
