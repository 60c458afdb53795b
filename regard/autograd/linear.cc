#include "regard/autograd/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <array>
#include <stdexcept>
#include <vector>

#include "regard/attention/linear_reference.h"
#include "regard/autograd/parallel.h"
#include "regard/autograd/second_derivative.h"
#include "regard/autograd/views.h"

namespace regard::autograd {
namespace {

using attention::Denominator;
using attention::LinearArrays;
using attention::LinearSpec;
using kernel::Extents;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The operands that have gradients, in this order everywhere; then key_lengths.
enum Operand : size_t { kQ, kK, kV, kLogDecay, kBeta, kState, kNorm, kGraded };
using Tensors = std::array<at::Tensor, kGraded>;

struct LinearSpecHolder : torch::CustomClassHolder {
  explicit LinearSpecHolder(const LinearSpec& spec) : spec(spec) {}
  LinearSpec spec;
};

at::Tensor empty_heads(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return at::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, options).transpose(1, 2);
}

Extents sizes_of(const at::Tensor& x) {
  return {x.size(0), x.size(1), x.size(2), x.size(3)};
}

Extents per_key(const at::Tensor& k) {
  return {k.size(0), k.size(1), k.size(2), 1};
}

bool divides(const LinearSpec& spec) {
  return spec.denominator != Denominator::none;
}

void check_tensors(const Tensors& t) {
  static constexpr const char* kNames[] = {"q", "k", "v", "log_decay", "beta", "state", "norm"};
  for (size_t i = 0; i < kGraded; ++i) {
    if (!t[i].defined()) continue;
    const bool wide = i < kLogDecay || i >= kState;
    const at::ScalarType wanted =
        i < kLogDecay || t[kQ].scalar_type() == at::kDouble ? t[kQ].scalar_type() : at::kFloat;
    if ((wide && t[i].dim() != 4) || t[i].scalar_type() != wanted || !t[i].device().is_cpu()) {
      throw std::invalid_argument("linear attention: " + std::string(kNames[i]) + " is " +
                                  std::string(at::toString(t[i].scalar_type())) + " with " +
                                  std::to_string(t[i].dim()) + " axes; allowed: " + at::toString(wanted) +
                                  (wide ? " with 4" : " with at most 4") + " on the CPU");
    }
  }
}

attention::LinearOperands operands(const Tensors& t, const at::Tensor& lengths) {
  attention::LinearOperands call;
  call.q = const_view(t[kQ], "q");
  call.k = const_view(t[kK], "k");
  call.v = const_view(t[kV], "v");
  const Extents state{t[kK].size(0), t[kK].size(1), t[kK].size(3), t[kV].size(3)};
  if (t[kLogDecay].defined()) call.log_decay = broadcast_view(t[kLogDecay], sizes_of(t[kK]), "log_decay");
  if (t[kBeta].defined()) call.beta = broadcast_view(t[kBeta], per_key(t[kK]), "beta");
  if (t[kState].defined()) call.state = broadcast_view(t[kState], state, "state");
  if (t[kNorm].defined()) call.norm = broadcast_view(t[kNorm], {state[0], state[1], state[2], 1}, "norm");
  if (lengths.defined()) call.key_lengths = lengths_view(lengths);
  return call;
}

std::vector<double> values(const at::Tensor& x) {
  const at::Tensor flat = x.contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

at::Tensor tensor(const std::vector<double>& x, at::IntArrayRef sizes) {
  at::Tensor result = at::empty(sizes, at::kDouble);
  std::copy(x.begin(), x.end(), result.mutable_data_ptr<double>());
  return result;
}

// float64: the reference's arrays.
LinearArrays arrays(const Tensors& t, const at::Tensor& lengths) {
  LinearArrays a;
  a.batch = t[kQ].size(0);
  a.heads = t[kQ].size(1);
  a.kv_heads = t[kK].size(1);
  a.queries = t[kQ].size(2);
  a.keys = t[kK].size(2);
  a.dk = t[kK].size(3);
  a.dv = t[kV].size(3);
  a.q = values(t[kQ]);
  a.k = values(t[kK]);
  a.v = values(t[kV]);
  if (t[kLogDecay].defined()) a.log_decay = values(t[kLogDecay].expand(t[kK].sizes()));
  if (t[kBeta].defined()) a.beta = values(t[kBeta].expand({a.batch, a.kv_heads, a.keys, 1}));
  if (t[kState].defined()) a.state = values(t[kState]);
  if (t[kNorm].defined()) a.norm = values(t[kNorm]);
  if (lengths.defined()) {
    const at::Tensor flat = lengths.contiguous();
    a.key_lengths.assign(flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel());
  }
  return a;
}

// out, state, norm, denominators; the last two undefined without a denominator.
variable_list run(const LinearSpec& spec, const Tensors& t, const at::Tensor& lengths) {
  check_tensors(t);
  const at::Tensor &q = t[kQ], &k = t[kK], &v = t[kV];
  const std::vector<int64_t> state{k.size(0), k.size(1), k.size(3), v.size(3)};
  const std::vector<int64_t> norm{k.size(0), k.size(1), k.size(3), 1};
  variable_list result(4);
  if (q.scalar_type() == at::kDouble) {
    // Views of the right sizes stand in for the check.
    Tensors floats = t;
    for (at::Tensor& x : floats)
      if (x.defined()) x = x.to(at::kFloat);
    attention::LinearOperands sizes = operands(floats, lengths);
    attention::check(spec, sizes);
    const attention::LinearReference r = attention::linear_reference(spec, arrays(t, lengths));
    result[0] = tensor(r.out, {q.size(0), q.size(1), q.size(2), v.size(3)});
    result[1] = tensor(r.state, state);
    if (divides(spec)) result[2] = tensor(r.norm, norm);
    return result;
  }
  attention::LinearOperands call = operands(t, lengths);
  const auto floats = q.options().dtype(at::kFloat);
  result[0] = empty_heads({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  result[1] = at::empty(state, floats);
  call.out = mutable_view(result[0], "out");
  call.state_out = gradient_view(result[1], {state[0], state[1], state[2], state[3]}, "state");
  if (divides(spec)) {
    result[2] = at::empty(norm, floats);
    result[3] = at::empty({q.size(0), q.size(1), q.size(2), 1}, floats);
    call.norm_out = gradient_view(result[2], {norm[0], norm[1], norm[2], 1}, "norm");
    call.denominators = gradient_view(result[3], {q.size(0), q.size(1), q.size(2), 1}, "denominators");
  }
  attention::linear_attention(spec, call, at_parallel());
  return result;
}

// A sum of what broadcasting repeated.
at::Tensor summed_to(const at::Tensor& full, const at::Tensor& like) {
  return at::sum_to(full, like.sizes());
}

variable_list reference_gradients(const LinearSpec& spec, const Tensors& t, const at::Tensor& lengths,
                                  const variable_list& grads) {
  const LinearArrays a = arrays(t, lengths);
  const auto given = [](const at::Tensor& grad) {
    return grad.defined() ? values(grad) : std::vector<double>();
  };
  std::vector<double> grad_out = given(grads[0]);
  if (grad_out.empty()) grad_out.assign(static_cast<size_t>(a.batch * a.heads * a.queries * a.dv), 0.0);
  const attention::LinearReferenceGradients g =
      attention::linear_reference_backward(spec, a, grad_out, given(grads[1]), given(grads[2]));
  const std::vector<int64_t> key{a.batch, a.kv_heads, a.keys, 1};
  variable_list result(kGraded);
  result[kQ] = tensor(g.q, t[kQ].sizes());
  result[kK] = tensor(g.k, t[kK].sizes());
  result[kV] = tensor(g.v, t[kV].sizes());
  if (t[kLogDecay].defined()) result[kLogDecay] = summed_to(tensor(g.log_decay, t[kK].sizes()), t[kLogDecay]);
  if (t[kBeta].defined()) result[kBeta] = summed_to(tensor(g.beta, key), t[kBeta]);
  if (t[kState].defined()) result[kState] = tensor(g.state, t[kState].sizes());
  if (t[kNorm].defined()) result[kNorm] = tensor(g.norm, t[kNorm].sizes());
  return result;
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static variable_list forward(AutogradContext* context, const LinearSpec& spec, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v,
                               const std::optional<at::Tensor>& /*log_decay*/,
                               const std::optional<at::Tensor>& /*beta*/,
                               const std::optional<at::Tensor>& /*state*/,
                               const std::optional<at::Tensor>& /*norm*/, const LinearExtras& extras) {
    const Tensors t{q, k, v, extras.log_decay, extras.beta, extras.state, extras.norm};
    variable_list result = run(spec, t, extras.key_lengths);
    const bool keeps_out = divides(spec) && q.scalar_type() != at::kDouble;
    context->save_for_backward({t[kQ], t[kK], t[kV], t[kLogDecay], t[kBeta], t[kState], t[kNorm],
                                extras.key_lengths, keeps_out ? result[0] : at::Tensor(), result[3]});
    context->saved_data["spec"] = c10::IValue::make_capsule(c10::make_intrusive<LinearSpecHolder>(spec));
    result.pop_back();
    if (!result[2].defined()) result.pop_back();
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("linear attention");
    grads.resize(3);
    const variable_list saved = context->get_saved_variables();
    Tensors t;
    std::copy_n(saved.begin(), t.size(), t.begin());
    const at::Tensor& lengths = saved[kGraded];
    const c10::intrusive_ptr<torch::CustomClassHolder> capsule = context->saved_data["spec"].toCapsule();
    const LinearSpec& spec = static_cast<const LinearSpecHolder&>(*capsule).spec;
    // In the order of forward()'s arguments: spec, the operands, extras.
    variable_list result(kGraded + 2);
    if (t[kQ].scalar_type() == at::kDouble) {
      const variable_list all = reference_gradients(spec, t, lengths, grads);
      std::copy(all.begin(), all.end(), result.begin() + 1);
      return result;
    }
    attention::LinearOperands call = operands(t, lengths);
    if (divides(spec)) {
      call.out = mutable_view(saved[kGraded + 1], "out");
      call.denominators =
          gradient_view(saved[kGraded + 2], {t[kQ].size(0), t[kQ].size(1), t[kQ].size(2), 1}, "denominators");
    }
    attention::LinearArriving arriving;
    const Extents state{t[kK].size(0), t[kK].size(1), t[kK].size(3), t[kV].size(3)};
    const Extents norm{state[0], state[1], state[2], 1};
    if (grads[0].defined()) arriving.out = const_view(grads[0], "the gradient of out");
    if (grads[1].defined()) arriving.state = broadcast_view(grads[1], state, "the gradient of state");
    if (grads[2].defined()) arriving.norm = broadcast_view(grads[2], norm, "the gradient of norm");
    attention::LinearGradients wanted;
    size_t edge = 0;
    const auto want = [&](Operand i) {
      if (!t[i].defined() || !context->needs_input_grad(edge++)) return at::Tensor();
      return result[i + 1] = i < kLogDecay ? empty_heads(t[i].sizes(), t[i].options())
                                           : at::empty(t[i].sizes(), t[i].options());
    };
    if (const at::Tensor grad = want(kQ); grad.defined()) wanted.q = mutable_view(grad, "q");
    if (const at::Tensor grad = want(kK); grad.defined()) wanted.k = mutable_view(grad, "k");
    if (const at::Tensor grad = want(kV); grad.defined()) wanted.v = mutable_view(grad, "v");
    if (const at::Tensor grad = want(kLogDecay); grad.defined())
      wanted.log_decay = gradient_view(grad, sizes_of(t[kK]), "log_decay");
    if (const at::Tensor grad = want(kBeta); grad.defined())
      wanted.beta = gradient_view(grad, per_key(t[kK]), "beta");
    if (const at::Tensor grad = want(kState); grad.defined())
      wanted.state = gradient_view(grad, state, "state");
    if (const at::Tensor grad = want(kNorm); grad.defined()) wanted.norm = gradient_view(grad, norm, "norm");
    attention::linear_backward(spec, call, arriving, wanted, at_parallel());
    return result;
  }
};

// Function's arguments may be absent, but not undefined tensors.
std::optional<at::Tensor> given(const at::Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

}  // namespace

LinearResult linear_attention(const LinearSpec& spec, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const LinearExtras& extras) {
  const Tensors t{q, k, v, extras.log_decay, extras.beta, extras.state, extras.norm};
  const bool graded = at::GradMode::is_enabled() && std::any_of(t.begin(), t.end(), [](const at::Tensor& x) {
                        return x.defined() && x.requires_grad();
                      });
  variable_list result =
      graded ? LinearFunction::apply(spec, q, k, v, given(extras.log_decay), given(extras.beta),
                                     given(extras.state), given(extras.norm), extras)
             : run(spec, t, extras.key_lengths);
  result.resize(3);
  return {result[0], result[1], result[2]};
}

}  // namespace regard::autograd
