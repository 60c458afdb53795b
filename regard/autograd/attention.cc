#include "regard/autograd/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "regard/attention/varlen.h"
#include "regard/autograd/operator.h"
#include "regard/autograd/parallel.h"
#include "regard/autograd/second_derivative.h"
#include "regard/autograd/views.h"

namespace regard::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What a call is, apart from its tensors. Travels through IValue as a capsule.
struct Call : torch::CustomClassHolder {
  Call(std::shared_ptr<const AttentionOperator> op, attention::Spec spec)
      : op(std::move(op)), spec(std::move(spec)) {}
  std::shared_ptr<const AttentionOperator> op;
  attention::Spec spec;
  AttentionExtras numbers;  // no tensors
};

// [B, H, L, D] whose heads join without a copy, as projections leave their results.
at::Tensor empty_heads(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return at::empty({sizes[0], sizes[2], sizes[1], sizes[3]}, options).transpose(1, 2);
}

struct Output {
  at::Tensor out;
  at::Tensor lse;
};

Output forward(const AttentionOperator& op, const attention::Spec& spec, const at::Tensor& q,
               const at::Tensor& k, const at::Tensor& v, const AttentionExtras& extras, bool with_lse) {
  attention::Operands call = operands(q, k, v, extras);
  Output result{empty_heads({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options()), {}};
  call.out = mutable_view(result.out, "out");
  if (with_lse) {
    result.lse = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    call.lse = lse_view(result.lse);
  }
  op.forward(spec, call, at_parallel());
  return result;
}

// grad_lse [B, Hq, Lq] as the kernels take it.
attention::View<const float> grad_lse_view(const at::Tensor& grad) {
  return grad.defined() ? const_lse_view(grad) : attention::View<const float>();
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<Call>& call,
                               const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const std::optional<at::Tensor>& /*bias*/,
                               const std::optional<at::Tensor>& /*slopes*/,
                               const std::optional<at::Tensor>& /*sinks*/, const AttentionExtras& extras) {
    Output result = autograd::forward(*call->op, call->spec, q, k, v, extras, true);
    context->save_for_backward({q, k, v, result.out, result.lse, extras.bias, extras.slopes, extras.sinks,
                                extras.dense_mask, extras.key_lengths, extras.query_segments,
                                extras.key_segments, extras.block_mask});
    call->numbers.dropout_seed = extras.dropout_seed;
    call->numbers.dropout_offset = extras.dropout_offset;
    call->numbers.dropout_first_batch = extras.dropout_first_batch;
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return {result.out, result.lse};
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative("attention");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const c10::intrusive_ptr<torch::CustomClassHolder> capsule = context->saved_data["call"].toCapsule();
    const Call& made = static_cast<const Call&>(*capsule);
    AttentionExtras extras = made.numbers;
    extras.bias = saved[5];
    extras.slopes = saved[6];
    extras.sinks = saved[7];
    extras.dense_mask = saved[8];
    extras.key_lengths = saved[9];
    extras.query_segments = saved[10];
    extras.key_segments = saved[11];
    extras.block_mask = saved[12];
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
    made.op->backward(made.spec, call, {const_view(grad_out, "grad_out"), grad_lse_view(grads[1])}, wanted,
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

// The kernels of a Spec.
class SpecOperator final : public AttentionOperator {
 public:
  void forward(const attention::Spec& spec, const attention::Operands& operands,
               kernel::Parallel& parallel) const override {
    attention::attention(spec, operands, parallel);
  }
  void backward(const attention::Spec& spec, const attention::Operands& operands,
                const attention::Arriving& arriving, const attention::Gradients& gradients,
                kernel::Parallel& parallel) const override {
    attention::backward(spec, operands, arriving, gradients, parallel);
  }
};

// The same for each document.
class VarlenOperator final : public AttentionOperator {
 public:
  VarlenOperator(std::vector<int64_t> query_starts, std::vector<int64_t> key_starts)
      : query_starts_(std::move(query_starts)), key_starts_(std::move(key_starts)) {}

  void forward(const attention::Spec& spec, const attention::Operands& operands,
               kernel::Parallel& parallel) const override {
    attention::varlen_attention(spec, operands, {query_starts_, key_starts_}, parallel);
  }
  void backward(const attention::Spec& spec, const attention::Operands& operands,
                const attention::Arriving& arriving, const attention::Gradients& gradients,
                kernel::Parallel& parallel) const override {
    attention::varlen_backward(spec, operands, {query_starts_, key_starts_}, arriving, gradients, parallel);
  }

 private:
  std::vector<int64_t> query_starts_, key_starts_;
};

}  // namespace

void add_extras(const AttentionExtras& extras, const kernel::Extents& square, attention::Operands& call) {
  if (extras.bias.defined()) call.bias = broadcast_view(extras.bias, square, "bias");
  if (extras.slopes.defined()) call.slopes = per_head_view(extras.slopes, "slopes");
  if (extras.sinks.defined()) call.sinks = per_head_view(extras.sinks, "sinks");
  if (extras.dense_mask.defined()) call.dense_mask = mask_view(extras.dense_mask, square, "dense_mask");
  if (extras.key_lengths.defined()) call.key_lengths = lengths_view(extras.key_lengths);
  if (extras.query_segments.defined()) {
    call.query_segments = segments_view(extras.query_segments, "query_segments");
  }
  if (extras.key_segments.defined()) call.key_segments = segments_view(extras.key_segments, "key_segments");
  if (extras.block_mask.defined()) call.block_mask = block_mask_view(extras.block_mask);
  call.dropout_seed = extras.dropout_seed;
  call.dropout_offset = extras.dropout_offset;
  call.dropout_first_batch = extras.dropout_first_batch;
}

attention::Operands operands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionExtras& extras) {
  attention::Operands call;
  call.q = const_view(q, "q");
  call.k = const_view(k, "k");
  call.v = const_view(v, "v");
  add_extras(extras, {q.size(0), q.size(1), q.size(2), k.size(2)}, call);
  return call;
}

at::Tensor apply(std::shared_ptr<const AttentionOperator> op, const attention::Spec& spec,
                 const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionExtras& extras,
                 at::Tensor* lse) {
  if (at::GradMode::is_enabled()) {
    if (wants_gradient(q) || wants_gradient(k) || wants_gradient(v) || wants_gradient(extras.bias) ||
        wants_gradient(extras.slopes) || wants_gradient(extras.sinks)) {
      const variable_list result =
          AttentionFunction::apply(c10::make_intrusive<Call>(std::move(op), spec), q, k, v,
                                   given(extras.bias), given(extras.slopes), given(extras.sinks), extras);
      if (lse != nullptr) *lse = result[1];
      return result[0];
    }
  }
  Output result = forward(*op, spec, q, k, v, extras, lse != nullptr);
  if (lse != nullptr) *lse = result.lse;
  return result.out;
}

at::Tensor attention(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, const AttentionExtras& extras, at::Tensor* lse) {
  static const auto op = std::make_shared<SpecOperator>();
  return apply(op, spec, q, k, v, extras, lse);
}

at::Tensor varlen_attention(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& query_starts, const at::Tensor& key_starts,
                            const AttentionExtras& extras, at::Tensor* lse) {
  return apply(std::make_shared<VarlenOperator>(starts_of(query_starts, "query_starts"),
                                                starts_of(key_starts, "key_starts")),
               spec, q, k, v, extras, lse);
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
