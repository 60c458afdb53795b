#include "regard/layer/diversity.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "regard/autograd/second_derivative.h"

namespace regard::layer {
namespace {

using autograd::AttentionExtras;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRows = 64;  // of a tile

// Travels through IValue as a capsule.
struct Call : torch::CustomClassHolder {
  Call(attention::Spec spec, AttentionExtras extras) : spec(std::move(spec)), extras(std::move(extras)) {}
  attention::Spec spec;
  AttentionExtras extras;
};

// Calls tile(b, first row, weights [Hq, rows, Lk]) for all rows, in order.
template <class Tile>
void each_tile(const Call& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& lse,
               Tile&& tile) {
  const int64_t length = q.size(2);
  for (int64_t b = 0; b < q.size(0); ++b)
    for (int64_t row = 0; row < length; row += kRows) {
      const int64_t rows = std::min(kRows, length - row);
      std::vector<at::Tensor> heads;
      for (int64_t h = 0; h < q.size(1); ++h)
        heads.push_back(autograd::weights(call.spec, q, k, lse, b, h, row, rows, 0, k.size(2), call.extras));
      tile(b, row, at::stack(heads));
    }
}

double pairs(const at::Tensor& q, const at::Tensor& k) {
  return static_cast<double>(q.size(0) * q.size(1) * q.size(2) * k.size(2));
}

struct DiversityFunction : torch::autograd::Function<DiversityFunction> {
  static at::Tensor forward(AutogradContext* context, const c10::intrusive_ptr<Call>& call,
                            const at::Tensor& q, const at::Tensor& k) {
    at::Tensor lse;
    autograd::attention(call->spec, q, k, k, call->extras, &lse);
    context->save_for_backward({q, k, lse});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    double sum = 0;
    each_tile(*call, q, k, lse, [&](int64_t, int64_t, const at::Tensor& weights) {
      sum += (weights - weights.mean(0, true)).square().sum().item<double>();
    });
    return at::full({}, sum / pairs(q, k), q.options());
  }

  // dD/dA = 2 (A - mean) / pairs: what the mean adds of its own cancels. Then through the softmax.
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    autograd::refuse_second_derivative("head_diversity");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1];
    const c10::intrusive_ptr<torch::CustomClassHolder> capsule = context->saved_data["call"].toCapsule();
    const auto& call = static_cast<const Call&>(*capsule);
    const double scale = call.spec.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
    const double factor = 2 * scale / pairs(q, k) * grads[0].item<double>();
    const int64_t heads = q.size(1), kv_heads = k.size(1), group = heads / kv_heads;
    at::Tensor to_q = at::zeros_like(q), to_k = at::zeros_like(k);
    each_tile(call, q, k, saved[2], [&](int64_t b, int64_t row, const at::Tensor& weights) {
      const int64_t rows = weights.size(1), keys = weights.size(2);
      const at::Tensor arriving = weights - weights.mean(0, true);
      const at::Tensor scores =
          weights * (arriving - (weights * arriving).sum(-1, true)) * factor;  // [Hq, rows, Lk]
      const at::Tensor of_group = scores.view({kv_heads, group * rows, keys});
      const at::Tensor queries = q[b].narrow(1, row, rows).reshape({kv_heads, group * rows, q.size(3)});
      to_q[b].narrow(1, row, rows).copy_(at::matmul(of_group, k[b]).view({heads, rows, q.size(3)}));
      to_k[b].add_(at::matmul(of_group.transpose(1, 2), queries));
    });
    return {at::Tensor(), to_q, to_k};
  }
};

}  // namespace

at::Tensor head_diversity(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k,
                          const AttentionExtras& extras) {
  if (spec.softcap != 0) throw std::invalid_argument("head_diversity: a softcap is not known to it");
  attention::Spec plain = spec;
  plain.dropout = 0;
  return DiversityFunction::apply(c10::make_intrusive<Call>(std::move(plain), extras), q, k);
}

}  // namespace regard::layer
