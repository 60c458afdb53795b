#include "regard/layer/latent.h"

#include <ATen/ATen.h>

#include <cmath>
#include <stdexcept>

#include "regard/autograd/attention.h"
#include "regard/layer/diversity.h"
#include "regard/layer/dropout.h"
#include "regard/layer/kv_cache.h"

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
        register_module("query_norm", std::make_shared<Norm>(kernel::NormForm::rms, o.epsilon, o.query_rank));
  }
  query_up_ = register_module(
      "query_up", std::make_shared<Linear>(o.query_rank > 0 ? o.query_rank : o.width, queries, false));
  down_ = register_module("down", std::make_shared<Linear>(o.width, o.rank + o.rope, false));
  norm_ = register_module("norm", std::make_shared<Norm>(kernel::NormForm::rms, o.epsilon, o.rank));
  up_ = register_module("up", std::make_shared<Linear>(o.rank, o.heads * (o.nope + o.value), false));
  out_ = register_module("out", std::make_shared<Linear>(o.heads * o.value, o.width, false));
}

LatentAttention::Projected LatentAttention::project(const at::Tensor& x, const RopeTable& table) const {
  const LatentOptions& o = options_;
  const at::Tensor from = query_down_ ? query_norm_->forward(query_down_->forward(x)) : x;
  const at::Tensor q = query_up_->forward(from).view({x.size(0), x.size(1), o.heads, o.nope + o.rope});
  const at::Tensor down = down_->forward(x);
  const at::Tensor turned_k = rotate(down.narrow(-1, o.rank, o.rope).unsqueeze(2), table, o.pairs).squeeze(2);
  return {q.narrow(-1, 0, o.nope), rotate(q.narrow(-1, o.nope, o.rope), table, o.pairs),
          at::cat({norm_->forward(down.narrow(-1, 0, o.rank)), turned_k}, -1)};
}

attention::Spec LatentAttention::spec() const {
  attention::Spec spec;
  spec.mask = attention::Mask::causal(attention::Align::bottom_right);
  spec.scale = 1 / std::sqrt(static_cast<double>(options_.nope + options_.rope));
  return spec;
}

at::Tensor LatentAttention::up_by_head() const {
  return up_->weight().dense().view({options_.heads, options_.nope + options_.value, options_.rank});
}

LatentAttention::Naive LatentAttention::naive(const Projected& from, const at::Tensor& latents) const {
  const LatentOptions& o = options_;
  const int64_t B = latents.size(0), keys = latents.size(1);
  const at::Tensor kv =
      up_->forward(latents.narrow(-1, 0, o.rank)).view({B, keys, o.heads, o.nope + o.value});
  const at::Tensor shared =
      latents.narrow(-1, o.rank, o.rope).unsqueeze(2).expand({B, keys, o.heads, o.rope});
  return {at::cat({from.plain_q, from.turned_q}, -1).transpose(1, 2),
          at::cat({kv.narrow(-1, 0, o.nope), shared}, -1).transpose(1, 2),
          kv.narrow(-1, o.nope, o.value).transpose(1, 2)};
}

at::Tensor LatentAttention::absorb(const Projected& from) const {
  const at::Tensor absorbed =
      at::matmul(from.plain_q.transpose(1, 2), up_by_head().narrow(1, 0, options_.nope));
  return at::cat({absorbed, from.turned_q.transpose(1, 2)}, -1);
}

at::Tensor LatentAttention::expand(const at::Tensor& weighed) const {
  return at::matmul(weighed, up_by_head().narrow(1, options_.nope, options_.value).transpose(1, 2));
}

at::Tensor LatentAttention::join(const at::Tensor& mixed) const {
  return out_->forward(
      mixed.transpose(1, 2).reshape({mixed.size(0), mixed.size(2), options_.heads * options_.value}));
}

at::Tensor LatentAttention::forward(const at::Tensor& x, const RopeTable& table, Path path,
                                    at::Tensor* latents) const {
  const Projected from = project(x, table);
  at::Tensor all = from.latents;  // [B, Lk, rank + rope]
  if (latents != nullptr) {
    if (latents->defined()) all = at::cat({*latents, all}, 1);
    *latents = all;
  }
  if (path == Path::naive) {
    const Naive made = naive(from, all);
    return join(autograd::attention(spec(), made.q, made.k, made.v));
  }
  return join(expand(autograd::attention(spec(), absorb(from), all.unsqueeze(1),
                                         all.narrow(-1, 0, options_.rank).unsqueeze(1))));
}

at::Tensor LatentAttention::forward(const at::Tensor& x, int64_t layer, const Pass& pass) const {
  if (pass.rope == nullptr) throw std::invalid_argument("LatentAttention: a table of positions is needed");
  if (pass.key_lengths.defined())
    throw std::invalid_argument("LatentAttention: padded batches are not known; pack documents instead");
  const Projected from = project(x, *pass.rope);
  Recorder* recorder = pass.context->recorder;
  const bool recorded = recorder != nullptr && recorder->wants(pass.first_call + layer);
  at::Tensor lse;
  AttentionCall call;
  call.layer = pass.first_call + layer;
  call.first_query = pass.context->position;
  call.segments = pass.segments;
  call.x = x;
  attention::Spec how = spec();
  at::Tensor mixed;
  if (KvCache* cache = pass.context->cache; cache != nullptr) {
    cache->append(layer, from.latents.unsqueeze(1), from.latents.narrow(-1, 0, options_.rank).unsqueeze(1));
    attention::Spec rest = how;
    rest.mask = {};  // causality is the cache's
    call.q = absorb(from);
    mixed = expand(cache->attend(layer, rest, call.q, {}, recorded ? &lse : nullptr));
    if (recorded) {
      const KvCache::Keys held = cache->keys(layer);
      call.k = held.k;
      call.v = held.v;
    }
  } else {
    autograd::AttentionExtras extras;
    if (pass.segments.defined()) {
      how.mask = how.mask & attention::Mask::segments();
      extras.query_segments = extras.key_segments = pass.segments;
    }
    const Naive made = naive(from, from.latents);
    call.q = made.q;
    call.k = made.k;
    call.v = made.v;
    call.joined = out_->weight().dense();
    attention::Spec dropping = how;
    drop_weights(options_.dropout, *pass.context, dropping, extras);
    mixed = autograd::attention(dropping, made.q, made.k, made.v, extras, recorded ? &lse : nullptr);
    if (LossTerms* terms = pass.context->terms; terms != nullptr && terms->diversity != 0)
      terms->add(head_diversity(how, made.q, made.k, extras) * -terms->diversity);
  }
  if (recorded) {
    call.spec = &how;
    call.lse = lse;
    recorder->record(call);
  }
  return join(mixed);
}

}  // namespace regard::layer
