#include "regard/attention/decode.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/attention/lower.h"
#include "regard/attention/scratch.h"

namespace regard::attention {
namespace {

using kernel::Span;

// One entry of what is [B or 1, ...].
template <class T>
View<T> entry_of(View<T> view, int64_t batch) {
  if (view.size[0] > 1) view.data += batch * view.stride[0];
  view.size[0] = 1;
  return view;
}

// A mask for each entry of the batch, with positions counted from the entry's origin.
class EntryMasks {
 public:
  EntryMasks(const Mask& mask, const Operands& operands, const KvCache::Batch& batch)
      : origins_(batch.origins) {
    masks_.reserve(batch.lengths.size());
    for (size_t i = 0; i < batch.lengths.size(); ++i) {
      const auto b = static_cast<int64_t>(i);
      const int64_t keys = batch.origins[i] + batch.lengths[i];
      MaskData data{entry_of(operands.dense_mask, b), entry_of(operands.key_lengths, b),
                    entry_of(operands.query_segments, b), entry_of(operands.key_segments, b),
                    entry_of(operands.block_mask, b)};
      if (data.key_segments) data.key_segments.size[3] = keys;  // the rest is not this entry's
      masks_.emplace_back(mask, operands.q.size[2], keys, data);
    }
  }

  Span next_span(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from) const {
    const auto entry = static_cast<size_t>(batch);
    const int64_t origin = origins_[entry];
    const Span span = masks_[entry].next_span(0, head, row, rows, from + origin);
    if (span.begin >= span.end) return {};
    return {span.begin - origin, span.end - origin, span.full};
  }

  void bits(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key, int64_t columns,
            uint64_t* words) const {
    const auto entry = static_cast<size_t>(batch);
    masks_[entry].bits(0, head, row, rows, key + origins_[entry], columns, words);
  }

 private:
  std::vector<BoundMask> masks_;
  const std::vector<int64_t>& origins_;
};

[[noreturn]] void fail(const std::string& what) {
  throw std::invalid_argument("decode: " + what);
}

void check_spec(const Spec& spec, const Operands& operands) {
  if (operands.k || operands.v) fail("k or v is given; allowed: none, they lie in the cache");
  if (spec.dropout > 0) fail("dropout is " + std::to_string(spec.dropout) + "; allowed: 0");
  if (operands.slopes && spec.alibi_align != Align::bottom_right)
    fail("alibi_align is top_left; allowed: bottom_right");
}

// A call over a cache as kernels take it.
class OverCache {
 public:
  // whole: positions are counted from the beginnings of the sequences, not from what is held.
  OverCache(const Spec& spec, const Operands& operands, const KvCache& cache,
            std::span<const int64_t> sequences, bool whole)
      : batch_(cache.batch(sequences, whole)), operands_(operands) {
    check_spec(spec, operands);
    const KvCache::Shape& shape = cache.shape();
    const auto entries = static_cast<int64_t>(sequences.size());
    // Keys and values as far as sizes go; their data is the pool's.
    operands_.k = ConstAnyView(batch_.pages.k.data, operands.q.dtype,
                               {entries, shape.kv_heads, batch_.keys, shape.key_size}, {0, 0, 0, 1});
    operands_.v = ConstAnyView(batch_.pages.v.data, operands.q.dtype,
                               {entries, shape.kv_heads, batch_.keys, shape.value_size}, {0, 0, 0, 1});
    if (operands.out) {
      check(spec, operands_);
    } else {
      check_inputs(spec, operands_);
    }
    Mask mask = spec.mask & Mask::causal(Align::bottom_right);
    if (shape.window > 0) mask = mask & Mask::window(shape.window - 1, -1, Align::bottom_right);
    // The last position sees all that its entry has: nothing to ask for.
    const bool sees_everything = operands.q.size[2] == 1 && shape.window == 0 && spec.mask.sees_everything();
    if (!sees_everything) masks_.emplace(mask, operands_, batch_);
    problem_ = lower(spec, operands_, BoundMask({}, operands.q.size[2], batch_.keys));
    if (masks_) problem_.mask = kernel::tile_mask_of(*masks_);
    problem_.pages = batch_.pages;
    problem_.k.data = problem_.v.data = nullptr;
    problem_.alibi_offset = 0;
  }
  OverCache(const OverCache&) = delete;
  OverCache& operator=(const OverCache&) = delete;

  const Operands& operands() const { return operands_; }
  const kernel::Forward& problem() const { return problem_; }  // borrows this

 private:
  KvCache::Batch batch_;
  Operands operands_;
  std::optional<EntryMasks> masks_;
  kernel::Forward problem_;
};

std::vector<float> tile(const Spec& spec, const Operands& operands, const KvCache& cache,
                        std::span<const int64_t> sequences, View<const float> lse, const TileRange& range,
                        bool as_logits) {
  Operands inputs = operands;
  inputs.out = {};
  inputs.lse = {};
  const OverCache call(spec, inputs, cache, sequences, true);
  return tile(call.problem(), call.operands(), lse, range, as_logits);
}

}  // namespace

void decode(const Spec& spec, const Operands& operands, const KvCache& cache,
            std::span<const int64_t> sequences, kernel::Parallel& parallel) {
  if (!operands.out && operands.q.size[2] > 0 && cache.shape().value_size > 0)
    fail("out has no data; allowed: a pointer");
  const OverCache call(spec, operands, cache, sequences, operands.bias || spec.mask.depends_on_data());
  const kernel::Forward& problem = call.problem();
  if (problem.q.size[0] * problem.q.size[1] * problem.q.size[2] == 0) return;
  kernel::ForwardTiling tiling;  // of packed keys, where a row does not depend on the others
  if (!spec.row_invariant) tiling = kernel::choose_forward_tiling(problem);
  const Scratch scratch(kernel::forward_workspace(problem, tiling, parallel.workers()));
  kernel::forward(problem, tiling, scratch.bytes(), parallel);
}

Observation observe(const Observe& what, const Spec& spec, const Operands& operands, const KvCache& cache,
                    std::span<const int64_t> sequences, kernel::Parallel& parallel) {
  const OverCache call(spec, operands, cache, sequences, true);
  return observe(
      what, spec, call.problem(), 0, [&] { decode(spec, operands, cache, sequences, parallel); }, parallel);
}

std::vector<float> weights(const Spec& spec, const Operands& operands, const KvCache& cache,
                           std::span<const int64_t> sequences, View<const float> lse, int64_t batch,
                           int64_t head, int64_t row, int64_t rows, int64_t key, int64_t keys) {
  return tile(spec, operands, cache, sequences, lse, {batch, head, row, rows, key, keys}, false);
}

std::vector<float> logits(const Spec& spec, const Operands& operands, const KvCache& cache,
                          std::span<const int64_t> sequences, int64_t batch, int64_t head, int64_t row,
                          int64_t rows, int64_t key, int64_t keys) {
  return tile(spec, operands, cache, sequences, {}, {batch, head, row, rows, key, keys}, true);
}

}  // namespace regard::attention
