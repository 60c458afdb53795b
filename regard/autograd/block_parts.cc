#include "regard/autograd/block_parts.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "regard/autograd/parallel.h"
#include "regard/autograd/second_derivative.h"
#include "regard/kernel/pointwise.h"

namespace regard::autograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Heads [begin, begin + count) of rows of `columns` numbers, as [1 or B, count, positions, size]: one batch
// entry where each row has positions of its own.
template <class T>
kernel::View<T> heads_view(T* data, const at::Tensor& rows, int64_t begin, int64_t count, int64_t size,
                           bool own_positions) {
  const int64_t batch = own_positions ? 1 : rows.size(0);
  const int64_t length = own_positions ? rows.size(0) * rows.size(1) : rows.size(1);
  const int64_t columns = rows.size(2);
  return {data + begin * size, {batch, count, length, size}, {length * columns, size, columns, 1}};
}

struct SplitFunction : torch::autograd::Function<SplitFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv, int64_t heads,
                               int64_t kv_heads, const std::optional<at::Tensor>& cos,
                               const std::optional<at::Tensor>& sin) {
    const int64_t size = qkv.size(2) / (heads + 2 * kv_heads);
    context->saved_data["heads"] = heads;
    context->saved_data["kv_heads"] = kv_heads;
    context->saved_data["size"] = size;
    context->saved_data["turned"] = cos.has_value();
    at::Tensor whole = qkv.detach();
    if (cos) {
      context->save_for_backward({*cos, *sin});
      const bool own = cos->dim() == 4;
      auto* data = whole.mutable_data_ptr<float>();
      const auto view = heads_view(data, whole, 0, heads + kv_heads, size, own);
      kernel::rotate_halves({data, view.size, view.stride}, cos->const_data_ptr<float>(),
                            sin->const_data_ptr<float>(), view, at_parallel());
    }
    const auto part = [&](int64_t begin, int64_t count) {
      return whole.narrow(2, begin * size, count * size)
          .view({whole.size(0), whole.size(1), count, size})
          .transpose(1, 2);
    };
    return {part(0, heads), part(heads, kv_heads), part(heads + kv_heads, kv_heads)};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    refuse_second_derivative("split_heads");
    const int64_t heads = context->saved_data["heads"].toInt();
    const int64_t kv_heads = context->saved_data["kv_heads"].toInt();
    const int64_t size = context->saved_data["size"].toInt();
    at::Tensor any;
    for (const at::Tensor& grad : grads)
      if (grad.defined()) any = grad;
    const int64_t batch = any.size(0), length = any.size(2);
    at::Tensor whole = at::empty({batch, length, (heads + 2 * kv_heads) * size}, any.options());
    at::Tensor cos, back;
    if (context->saved_data["turned"].toBool()) {
      const variable_list saved = context->get_saved_variables();
      cos = saved[0];
      back = saved[1].neg();
    }
    int64_t begin = 0;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t count = i == 0 ? heads : kv_heads;
      at::Tensor to = whole.narrow(2, begin * size, count * size).view({batch, length, count, size});
      if (!grads[i].defined()) {
        to.zero_();
      } else if (i == 2 || !cos.defined()) {
        to.copy_(grads[i].transpose(1, 2));
      } else {
        const at::Tensor rows = grads[i].transpose(1, 2).contiguous().view({batch, length, count * size});
        const bool own = cos.dim() == 4;
        kernel::rotate_halves(heads_view(rows.const_data_ptr<float>(), rows, 0, count, size, own),
                              cos.const_data_ptr<float>(), back.const_data_ptr<float>(),
                              heads_view(whole.mutable_data_ptr<float>(), whole, begin, count, size, own),
                              at_parallel());
      }
      begin += count;
    }
    return {whole, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct GatedFunction : torch::autograd::Function<GatedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& both) {
    context->save_for_backward({both});
    std::vector<int64_t> shape = both.sizes().vec();
    const int64_t inner = shape.back() / 2;
    shape.back() = inner;
    at::Tensor out = at::empty(shape, both.options());
    const float* gate = both.const_data_ptr<float>();
    kernel::gated_silu(gate, gate + inner, 2 * inner, inner == 0 ? 0 : out.numel() / inner, inner,
                       out.mutable_data_ptr<float>(), at_parallel());
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    refuse_second_derivative("gated_silu");
    const at::Tensor both = context->get_saved_variables()[0];
    const at::Tensor grad = grads[0].contiguous();
    at::Tensor result = at::empty_like(both);
    const int64_t inner = both.size(-1) / 2;
    const float* gate = both.const_data_ptr<float>();
    auto* to = result.mutable_data_ptr<float>();
    kernel::gated_silu_backward(gate, gate + inner, 2 * inner, grad.const_data_ptr<float>(),
                                inner == 0 ? 0 : grad.numel() / inner, inner, to, to + inner, at_parallel());
    return {result};
  }
};

}  // namespace

SplitHeads split_heads(const at::Tensor& qkv, int64_t heads, int64_t kv_heads, const at::Tensor& cos,
                       const at::Tensor& sin) {
  const int64_t all = heads + 2 * kv_heads;
  if (heads < 1 || kv_heads < 1 || qkv.dim() != 3 || qkv.scalar_type() != at::kFloat ||
      !qkv.is_contiguous() || qkv.size(2) % all != 0) {
    throw std::invalid_argument(
        "split_heads: qkv must be float32 [batch, length, columns], contiguous, with "
        "columns a multiple of " +
        std::to_string(all) + ", all heads together");
  }
  if (cos.defined()) {
    const int64_t half = qkv.size(2) / all / 2;
    const auto fits = [&](const at::Tensor& table) {
      return table.scalar_type() == at::kFloat && table.is_contiguous() &&
             (table.dim() == 3 || (table.dim() == 4 && table.size(0) == qkv.size(0))) &&
             table.size(-3) == qkv.size(1) && table.size(-2) == 1 && table.size(-1) == half;
    };
    if (2 * half * all != qkv.size(2) || !fits(cos) || !sin.defined() || !fits(sin)) {
      throw std::invalid_argument(
          "split_heads: cos and sin must be float32 [length, 1, half a head] or [batch, length, 1, half a "
          "head]");
    }
  }
  const auto given = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  const variable_list parts = SplitFunction::apply(qkv, heads, kv_heads, given(cos), given(sin));
  return {parts[0], parts[1], parts[2]};
}

at::Tensor gated_silu(const at::Tensor& both) {
  if (both.dim() < 1 || both.size(-1) % 2 != 0 || both.scalar_type() != at::kFloat) {
    throw std::invalid_argument("gated_silu: the input must be float32 with an even last axis");
  }
  return GatedFunction::apply(both.contiguous());
}

}  // namespace regard::autograd
