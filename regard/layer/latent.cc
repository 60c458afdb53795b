#include "regard/layer/latent.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>

#include "regard/autograd/attention.h"

namespace regard::layer {

LatentAttention::LatentAttention(const LatentOptions& options) : options_(options) {
  const LatentOptions& o = options;
  if (o.width < 1 || o.heads < 1 || o.rank < 1 || o.nope < 1 || o.rope < 2 || o.rope % 2 != 0 ||
      o.value < 1) {
    throw std::invalid_argument("LatentAttention: sizes must be at least 1 and rope even, at least 2");
  }
  const int64_t queries = o.heads * (o.nope + o.rope);
  if (o.query_rank > 0) {
    query_down_ = register_module("query_down", std::make_shared<Linear>(o.width, o.query_rank, false));
    query_norm_ =
        register_module("query_norm", std::make_shared<Norm>(NormKind::rms, o.epsilon, o.query_rank));
  }
  query_up_ = register_module(
      "query_up", std::make_shared<Linear>(o.query_rank > 0 ? o.query_rank : o.width, queries, false));
  down_ = register_module("down", std::make_shared<Linear>(o.width, o.rank + o.rope, false));
  norm_ = register_module("norm", std::make_shared<Norm>(NormKind::rms, o.epsilon, o.rank));
  up_ = register_module("up", std::make_shared<Linear>(o.rank, o.heads * (o.nope + o.value), false));
  out_ = register_module("out", std::make_shared<Linear>(o.heads * o.value, o.width, false));
}

at::Tensor LatentAttention::forward(const at::Tensor& x, const RopeTable& table, Path path,
                                    at::Tensor* latents) const {
  const LatentOptions& o = options_;
  const int64_t B = x.size(0);
  const int64_t L = x.size(1);
  const at::Tensor from = query_down_ ? query_norm_->forward(query_down_->forward(x)) : x;
  const at::Tensor q = query_up_->forward(from).view({B, L, o.heads, o.nope + o.rope});
  const at::Tensor plain_q = q.narrow(-1, 0, o.nope);
  const at::Tensor turned_q = rotate(q.narrow(-1, o.nope, o.rope), table, o.pairs);
  const at::Tensor down = down_->forward(x);
  const at::Tensor turned_k = rotate(down.narrow(-1, o.rank, o.rope).unsqueeze(2), table, o.pairs).squeeze(2);
  at::Tensor all =
      at::cat({norm_->forward(down.narrow(-1, 0, o.rank)), turned_k}, -1);  // [B, Lk, rank + rope]
  if (latents != nullptr) {
    if (latents->defined()) all = at::cat({*latents, all}, 1);
    *latents = all;
  }
  const int64_t keys = all.size(1);
  attention::Spec spec;
  spec.mask = attention::Mask::causal(attention::Align::bottom_right);
  spec.scale = 1 / std::sqrt(static_cast<double>(o.nope + o.rope));
  // [H, nope + value, rank]
  const at::Tensor up = up_->weight().dense().view({o.heads, o.nope + o.value, o.rank});
  at::Tensor mixed;  // [B, H, L, value]
  if (path == Path::naive) {
    const at::Tensor kv = up_->forward(all.narrow(-1, 0, o.rank)).view({B, keys, o.heads, o.nope + o.value});
    const at::Tensor shared = all.narrow(-1, o.rank, o.rope).unsqueeze(2).expand({B, keys, o.heads, o.rope});
    const at::Tensor k = at::cat({kv.narrow(-1, 0, o.nope), shared}, -1);
    mixed = autograd::attention(spec, at::cat({plain_q, turned_q}, -1).transpose(1, 2), k.transpose(1, 2),
                                kv.narrow(-1, o.nope, o.value).transpose(1, 2));
  } else {
    const at::Tensor absorbed =
        at::matmul(plain_q.transpose(1, 2), up.narrow(1, 0, o.nope));  // [B, H, L, rank]
    const at::Tensor weighed = autograd::attention(spec, at::cat({absorbed, turned_q.transpose(1, 2)}, -1),
                                                   all.unsqueeze(1), all.narrow(-1, 0, o.rank).unsqueeze(1));
    mixed = at::matmul(weighed, up.narrow(1, o.nope, o.value).transpose(1, 2));
  }
  return out_->forward(mixed.transpose(1, 2).reshape({B, L, o.heads * o.value}));
}

}  // namespace regard::layer
