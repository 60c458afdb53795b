#include "regard/layer/attention.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <utility>

#include "regard/autograd/attention.h"
#include "regard/autograd/block_parts.h"
#include "regard/layer/diversity.h"
#include "regard/layer/dropout.h"
#include "regard/layer/kv_cache.h"

namespace regard::layer {
namespace {

void add_diversity(const attention::Spec& spec, const at::Tensor& q, const at::Tensor& k,
                   const autograd::AttentionExtras& extras, const Context& context) {
  if (LossTerms* terms = context.terms; terms != nullptr && terms->diversity != 0)
    terms->add(head_diversity(spec, q.to(at::kFloat), k.to(at::kFloat), extras) * -terms->diversity);
}

}  // namespace

Attention::Attention(const AttentionOptions& options, AttentionParts parts)
    : options_(options), parts_(std::move(parts)) {
  if (options.heads < 1 || options.kv_heads < 1 || options.heads % options.kv_heads != 0) {
    throw std::invalid_argument("Attention: heads must be a multiple of kv_heads");
  }
  if (options.window > 0 && !options.causal) {
    throw std::invalid_argument("Attention: a window is for causal attention only");
  }
  if (parts_.qkv) {
    register_module("qkv", parts_.qkv);
  } else {
    register_module("q", parts_.q);
    register_module("k", parts_.k);
    register_module("v", parts_.v);
  }
  register_module("out", parts_.out);
  if (parts_.q_norm) register_module("q_norm", parts_.q_norm);
  if (parts_.k_norm) register_module("k_norm", parts_.k_norm);
}

Attention::Heads Attention::project(const at::Tensor& x, const RopeTable* rope) const {
  const int64_t size = options_.head_size;
  const int64_t queries = options_.heads, keys = options_.kv_heads;
  const auto split = [&](const at::Tensor& projected, int64_t begin, int64_t heads) {
    return projected.narrow(2, begin * size, heads * size).view({x.size(0), x.size(1), heads, size});
  };
  Heads heads;
  if (parts_.qkv) {
    const at::Tensor all = parts_.qkv->forward(x);
    const bool whole = rope == nullptr || 2 * rope->cos.size(-1) == size;  // every component turns
    if (!parts_.q_norm && !parts_.k_norm && whole && all.scalar_type() == at::kFloat) {
      const auto [q, k, v] =
          autograd::split_heads(all, queries, keys, rope != nullptr ? rope->cos : at::Tensor(),
                                rope != nullptr ? rope->sin : at::Tensor());
      return {q, k, v};
    }
    heads = {split(all, 0, queries), split(all, queries, keys), split(all, queries + keys, keys)};
  } else {
    heads = {split(parts_.q->forward(x), 0, queries), split(parts_.k->forward(x), 0, keys),
             split(parts_.v->forward(x), 0, keys)};
  }
  if (parts_.q_norm) heads.q = parts_.q_norm->forward(heads.q);
  if (parts_.k_norm) heads.k = parts_.k_norm->forward(heads.k);
  if (rope != nullptr) {
    heads.q = rotate(heads.q, *rope);
    heads.k = rotate(heads.k, *rope);
  }
  // Strided views, which the kernels take as they are.
  return {heads.q.transpose(1, 2), heads.k.transpose(1, 2), heads.v.transpose(1, 2)};
}

at::Tensor Attention::forward(const at::Tensor& x, int64_t layer, const Pass& pass) const {
  auto [q, k, v] = project(x, pass.rope);
  const Weight& weight = (parts_.qkv ? parts_.qkv : parts_.q)->weight();
  const bool rounded = weight.products() == Weight::Products::bf16;
  if (rounded) {
    q = q.to(at::kBFloat16);
    k = k.to(at::kBFloat16);
    v = v.to(at::kBFloat16);
  }
  attention::Spec spec;
  spec.row_invariant = pass.context->row_invariant;
  // Bottom-right: with a cache, the last row stands at the last key.
  constexpr auto kAlign = attention::Align::bottom_right;
  if (options_.causal) spec.mask = spec.mask & attention::Mask::causal(kAlign);
  if (options_.window > 0) spec.mask = spec.mask & attention::Mask::window(options_.window - 1, 0, kAlign);
  autograd::AttentionExtras extras;
  if (pass.key_lengths.defined()) {
    spec.mask = spec.mask & attention::Mask::key_lengths();
    extras.key_lengths = pass.key_lengths;
  }
  if (pass.segments.defined()) {
    spec.mask = spec.mask & attention::Mask::segments();
    extras.query_segments = extras.key_segments = pass.segments;
  }

  Recorder* recorder = pass.context->recorder;
  const bool recorded = recorder != nullptr && recorder->wants(pass.first_call + layer);
  at::Tensor lse;
  at::Tensor* const wanted = recorded ? &lse : nullptr;
  at::Tensor mixed;
  if (KvCache* cache = pass.context->cache; cache != nullptr) {
    if (!options_.causal) throw std::invalid_argument("Attention: a cache is for causal attention only");
    cache->append(layer, k, v);
    // Causality and its own window are the cache's; without a mask one row has a shorter way.
    attention::Spec rest = spec;
    if (!pass.key_lengths.defined() && cache->window(layer) == options_.window) rest.mask = {};
    mixed = cache->attend(layer, rest, q, extras, wanted);
    if (recorded) {
      KvCache::Keys held = cache->keys(layer);
      k = std::move(held.k);
      v = std::move(held.v);
    }
  } else {
    attention::Spec dropping = spec;  // a recorder is shown the weights without dropout
    drop_weights(options_.dropout, *pass.context, dropping, extras);
    mixed = autograd::attention(dropping, q, k, v, extras, wanted);
  }
  if (recorded) {
    recorder->record({.layer = pass.first_call + layer,
                      .spec = &spec,
                      .q = q,
                      .k = k,
                      .v = v,
                      .lse = lse,
                      .key_lengths = pass.key_lengths,
                      .first_query = pass.context->position,
                      .segments = pass.segments,
                      .joined = parts_.out->weight().dense(),
                      .x = x});
  }
  add_diversity(spec, q, k, extras, *pass.context);
  if (rounded) mixed = mixed.to(at::kFloat);
  return joined(mixed);
}

at::Tensor Attention::joined(const at::Tensor& mixed) const {
  return parts_.out->forward(
      mixed.transpose(1, 2).reshape({mixed.size(0), mixed.size(2), options_.heads * options_.head_size}));
}

Attention::Keys Attention::keys(const at::Tensor& memory) const {
  if (!parts_.k) throw std::invalid_argument("Attention: another text needs projections of its own");
  const auto split = [&](const at::Tensor& x) {
    return x.view({x.size(0), x.size(1), options_.kv_heads, options_.head_size});
  };
  at::Tensor k = split(parts_.k->forward(memory));
  if (parts_.k_norm) k = parts_.k_norm->forward(k);
  return {k.transpose(1, 2), split(parts_.v->forward(memory)).transpose(1, 2)};
}

at::Tensor Attention::cross(const at::Tensor& x, int64_t layer, const Pass& pass) const {
  if (pass.memory == nullptr || !parts_.q) {
    throw std::invalid_argument("Attention: there is no other text to look at");
  }
  const Memory& memory = *pass.memory;
  at::Tensor q = parts_.q->forward(x).view({x.size(0), x.size(1), options_.heads, options_.head_size});
  if (parts_.q_norm) q = parts_.q_norm->forward(q);
  q = q.transpose(1, 2);
  attention::Spec spec;
  spec.row_invariant = pass.context->row_invariant;
  if (memory.cache != nullptr) {
    if (x.size(1) != 1) throw std::invalid_argument("Attention: with a memory in a cache x is one position");
    at::Tensor lse;
    const at::Tensor mixed =
        memory.cache->attend(layer, spec, q, {}, memory.weights != nullptr ? &lse : nullptr);
    if (memory.weights != nullptr) memory.weights->push_back(memory.cache->weights(layer, spec, q, lse));
    return joined(mixed);
  }
  const auto [k, v] = keys(memory.states);
  autograd::AttentionExtras extras;
  if (memory.lengths.defined()) {
    spec.mask = attention::Mask::key_lengths();
    extras.key_lengths = memory.lengths;
  }
  attention::Spec dropping = spec;
  drop_weights(options_.dropout, *pass.context, dropping, extras);
  Recorder* recorder = pass.context->recorder;
  const int64_t call = memory.first_call + layer;
  const bool recorded = recorder != nullptr && recorder->wants(call);
  at::Tensor lse;
  const at::Tensor mixed = autograd::attention(dropping, q, k, v, extras, recorded ? &lse : nullptr);
  if (recorded) {
    recorder->record({.layer = call,
                      .spec = &spec,
                      .q = q,
                      .k = k,
                      .v = v,
                      .lse = lse,
                      .key_lengths = memory.lengths,
                      .first_query = pass.context->position,
                      .joined = parts_.out->weight().dense(),
                      .x = {}});
  }
  add_diversity(spec, q, k, extras, *pass.context);
  return joined(mixed);
}

}  // namespace regard::layer
