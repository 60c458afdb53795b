#include "regard/autograd/decode.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "regard/attention/decode.h"
#include "regard/autograd/parallel.h"
#include "regard/autograd/views.h"

namespace regard::autograd {

void append(attention::KvCache& cache, std::span<const int64_t> sequences, const at::Tensor& k,
            const at::Tensor& v) {
  kernel::ConstAnyView values;
  if (v.defined() || !cache.shape().values_in_keys) values = const_view(v, "v");
  cache.append(sequences, const_view(k, "k"), values);
}

at::Tensor decode(const attention::Spec& spec, const at::Tensor& q, const attention::KvCache& cache,
                  std::span<const int64_t> sequences, const AttentionExtras& extras, at::Tensor* lse) {
  if (at::GradMode::is_enabled()) {
    for (const at::Tensor& x : {q, extras.bias, extras.slopes, extras.sinks}) {
      if (x.defined() && x.requires_grad()) {
        throw std::invalid_argument(
            "decode: a gradient is wanted; a cache has none, use attention() or at::NoGradGuard");
      }
    }
  }
  attention::Operands call;
  call.q = const_view(q, "q");
  int64_t keys = 0;
  for (const int64_t sequence : sequences) keys = std::max(keys, cache.length(sequence));
  add_extras(extras, {q.size(0), q.size(1), q.size(2), keys}, call);
  at::Tensor out =
      at::empty({q.size(0), q.size(2), q.size(1), cache.shape().value_size}, q.options()).transpose(1, 2);
  call.out = mutable_view(out, "out");
  if (lse != nullptr) {
    *lse = at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    call.lse = lse_view(*lse);
  }
  attention::decode(spec, call, cache, sequences, at_parallel());
  return out;
}

at::Tensor decode_weights(const attention::Spec& spec, const at::Tensor& q, const attention::KvCache& cache,
                          std::span<const int64_t> sequences, const at::Tensor& lse) {
  const at::NoGradGuard no_grad;
  attention::Operands call;
  call.q = const_view(q, "q");
  int64_t keys = 0;
  for (const int64_t sequence : sequences) keys = std::max(keys, cache.length(sequence));
  at::Tensor result = at::zeros({q.size(0), q.size(1), keys}, at::kFloat);
  auto* to = result.mutable_data_ptr<float>();
  for (int64_t b = 0; b < q.size(0); ++b) {
    for (int64_t h = 0; h < q.size(1); ++h, to += keys) {
      const std::vector<float> row =
          attention::weights(spec, call, cache, sequences, const_lse_view(lse), b, h, 0, 1, 0, keys);
      std::copy(row.begin(), row.end(), to);
    }
  }
  return result;
}

}  // namespace regard::autograd
