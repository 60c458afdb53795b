#include "regard/attention/mla.h"

#include <cmath>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "regard/attention/attention.h"
#include "regard/attention/decode.h"
#include "regard/attention/lower.h"
#include "regard/attention/mla_project.h"

namespace regard::attention {
namespace {

using kernel::DType;
using kernel::Extents;

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream out;
  out << "mla: ";
  (out << ... << parts);
  throw std::invalid_argument(out.str());
}

void check_size(const char* name, const Extents& size, const Extents& allowed) {
  if (size == allowed) return;
  const auto text = [](const Extents& s) {
    std::ostringstream out;
    out << '[' << s[0] << ", " << s[1] << ", " << s[2] << ", " << s[3] << ']';
    return out.str();
  };
  fail(name, " has sizes ", text(size), "; allowed: ", text(allowed));
}

void check(const MlaWeights& weights, const Operands& operands) {
  const Extents& q = operands.q.size;
  if (weights.heads() < 1 || weights.rank() < 1 || weights.value() < 1 || weights.rope < 0)
    fail("heads, rank, value and rope are ", weights.heads(), ", ", weights.rank(), ", ", weights.value(),
         " and ", weights.rope, "; allowed: 1 or more, rope 0 or more");
  check_size("w_uk", weights.w_uk.size, {1, weights.heads(), weights.nope(), weights.rank()});
  check_size("w_uv", weights.w_uv.size, {1, weights.heads(), weights.value(), weights.rank()});
  if (weights.w_uk.stride[3] != 1 || weights.w_uv.stride[3] != 1)
    fail("the features of w_uk or w_uv are not adjacent");
  check_size("q", q, {q[0], weights.heads(), q[2], weights.nope() + weights.rope});
  check_size("out", operands.out.size, {q[0], weights.heads(), q[2], weights.value()});
  if (operands.q.dtype != DType::f32 || operands.out.dtype != DType::f32)
    fail("q is of type ", kernel::name(operands.q.dtype), " and out of type ",
         kernel::name(operands.out.dtype), "; allowed: f32");
  if (operands.v) fail("v is given; allowed: none, values are made from the latents");
}

Spec with_scale(Spec spec, const MlaWeights& weights) {
  if (!spec.scale) spec.scale = 1.0 / std::sqrt(static_cast<double>(weights.nope() + weights.rope));
  return spec;
}

MlaPath default_path(const Spec& spec, const MlaWeights& weights, int64_t queries, int64_t keys) {
  return spec.row_invariant ? MlaPath::absorbed : choose_mla_path(weights, queries, keys);
}

// The features from `begin` on.
template <class V>
V features(V view, int64_t begin, int64_t end) {
  view.data += begin * view.stride[3];
  view.size[3] = end - begin;
  return view;
}

// An array of its own.
struct Array {
  Extents size;
  std::vector<float> values;
  Array(const char* name, const Extents& size)
      : size(size), values(static_cast<size_t>(element_count(name, size))) {}
  View<float> view() { return {values.data(), size}; }
};

template <class From>
void copy(const From& from, const View<float>& to) {
  for (int64_t b = 0; b < to.size[0]; ++b)
    for (int64_t h = 0; h < to.size[1]; ++h)
      for (int64_t i = 0; i < to.size[2]; ++i)
        for (int64_t f = 0; f < to.size[3]; ++f) to(b, h, i, f) = from(b, from.size[1] == 1 ? 0 : h, i, f);
}

// attend(operands) takes q of rank + rope and out of rank features.
template <class Attend>
void absorbed(const MlaWeights& weights, const Operands& operands, kernel::Parallel& parallel,
              Attend&& attend) {
  const Extents& size = operands.q.size;
  const int64_t rank = weights.rank();
  const int64_t rope = weights.rope;
  Array q("the absorbed queries", {size[0], size[1], size[2], rank + rope});
  Array out("the weighted latents", {size[0], size[1], size[2], rank});
  const View<const float> given = operands.q.as<const float>();
  project_transposed(weights.w_uk, given, q.view(), parallel);
  copy(features(given, weights.nope(), weights.nope() + rope), features(q.view(), rank, rank + rope));
  Operands latent = operands;
  latent.q = q.view();
  latent.out = out.view();
  attend(latent);
  project(weights.w_uv, out.view(), operands.out.as<float>(), parallel);
}

// latents: [B, 1, Lk, rank + rope].
void naive(const Spec& spec, const MlaWeights& weights, const Operands& operands,
           const View<const float>& latents, kernel::Parallel& parallel) {
  const int64_t batch = latents.size[0];
  const int64_t keys = latents.size[2];
  const int64_t nope = weights.nope();
  Array k("the keys", {batch, weights.heads(), keys, nope + weights.rope});
  Array v("the values", {batch, weights.heads(), keys, weights.value()});
  project(weights.w_uk, latents, k.view(), parallel);
  copy(features(latents, weights.rank(), weights.rank() + weights.rope),
       features(k.view(), nope, nope + weights.rope));
  project(weights.w_uv, latents, v.view(), parallel);
  Operands expanded = operands;
  expanded.k = k.view();
  expanded.v = v.view();
  attention(spec, expanded, parallel);
}

// One entry of a batch.
template <class V>
V entry(V view, int64_t b) {
  if (!view) return view;
  if (view.size[0] != 1) view.data += b * view.stride[0];
  view.size[0] = 1;
  return view;
}

}  // namespace

MlaPath choose_mla_path(const MlaWeights& weights, int64_t queries, int64_t keys) {
  // Multiplications of one head; both project with rank * (nope + value) a row, of queries or of keys.
  const auto projection = static_cast<double>(weights.rank() * (weights.nope() + weights.value()));
  const auto pairs = static_cast<double>(queries) * static_cast<double>(keys);
  const double absorbed = static_cast<double>(queries) * projection +
                          pairs * static_cast<double>(2 * weights.rank() + weights.rope);
  const double naive = static_cast<double>(keys) * projection +
                       pairs * static_cast<double>(weights.nope() + weights.rope + weights.value());
  return absorbed <= naive ? MlaPath::absorbed : MlaPath::naive;
}

void mla(const Spec& spec, const MlaWeights& weights, const Operands& operands, std::optional<MlaPath> path,
         kernel::Parallel& parallel) {
  check(weights, operands);
  const ConstAnyView& latents = operands.k;
  check_size("k", latents.size, {operands.q.size[0], 1, latents.size[2], weights.rank() + weights.rope});
  if (latents.dtype != DType::f32)
    fail("k is of type ", kernel::name(latents.dtype), "; allowed: f32, or a cache of any type");
  const Spec scaled = with_scale(spec, weights);
  if (path.value_or(default_path(spec, weights, operands.q.size[2], latents.size[2])) == MlaPath::naive)
    return naive(scaled, weights, operands, latents.as<const float>(), parallel);
  absorbed(weights, operands, parallel, [&](Operands& latent) {
    latent.v = features(latents.as<const float>(), 0, weights.rank());
    attention(scaled, latent, parallel);
  });
}

void mla_decode(const Spec& spec, const MlaWeights& weights, const Operands& operands, const KvCache& cache,
                std::span<const int64_t> sequences, std::optional<MlaPath> path, kernel::Parallel& parallel) {
  check(weights, operands);
  const KvCache::Shape& shape = cache.shape();
  const int64_t size = weights.rank() + weights.rope;
  if (shape.kv_heads != 1 || shape.key_size != size || shape.value_size != weights.rank() ||
      !shape.values_in_keys)
    fail("the cache has ", shape.kv_heads, " heads of ", shape.key_size, " and ", shape.value_size,
         "; allowed: 1 of rank + rope = ", size, " and rank = ", weights.rank(), ", with values_in_keys");
  if (static_cast<int64_t>(sequences.size()) != operands.q.size[0])
    fail(sequences.size(), " sequences are given; allowed: one for each of the ", operands.q.size[0],
         " entries of q");
  if (operands.bias || spec.dropout > 0 || spec.mask.depends_on_data())
    fail("there is a bias, dropout, or the mask ", spec.mask.to_string(),
         "; allowed over a cache: none of them, and a mask that needs no data");
  int64_t keys = 0;
  bool whole = true;
  for (const int64_t sequence : sequences) {
    keys = std::max(keys, cache.length(sequence));
    whole = whole && cache.start(sequence) == 0;
  }
  if (path.value_or(default_path(spec, weights, operands.q.size[2], keys)) == MlaPath::absorbed || !whole)
    return absorbed(weights, operands, parallel, [&](const Operands& latent) {
      decode(with_scale(spec, weights), latent, cache, sequences, parallel);
    });
  // One entry after the other: their lengths differ, and each has work for all workers.
  Spec flat = with_scale(spec, weights);
  flat.mask = flat.mask & Mask::causal(Align::bottom_right);
  if (shape.window > 0) flat.mask = flat.mask & Mask::window(shape.window - 1, -1, Align::bottom_right);
  for (size_t b = 0; b < sequences.size(); ++b) {
    Array latents("the latents", {1, 1, cache.length(sequences[b]), size});
    for (int64_t p = 0; p < latents.size[2]; ++p)
      cache.read(sequences[b], 0, p, latents.values.data() + p * size, nullptr);
    Operands one = operands;
    const auto at = static_cast<int64_t>(b);
    one.q = entry(operands.q.as<const float>(), at);
    one.out = entry(operands.out.as<float>(), at);
    one.lse = entry(operands.lse, at);
    one.slopes = entry(operands.slopes, at);
    one.sinks = entry(operands.sinks, at);
    naive(flat, weights, one, latents.view(), parallel);
  }
}

}  // namespace regard::attention
