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

// A mask for each entry of the batch, with positions counted from the entry's origin.
class EntryMasks {
 public:
  EntryMasks(const Mask& mask, int64_t queries, const KvCache::Batch& batch) : origins_(batch.origins) {
    masks_.reserve(batch.lengths.size());
    for (size_t b = 0; b < batch.lengths.size(); ++b)
      masks_.emplace_back(mask, queries, batch.origins[b] + batch.lengths[b]);
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
  if (operands.bias) fail("a bias is given; allowed: ALiBi slopes or none");
  if (spec.mask.depends_on_data())
    fail("the mask is " + spec.mask.to_string() + "; allowed: one that needs no data");
  if (spec.dropout > 0) fail("dropout is " + std::to_string(spec.dropout) + "; allowed: 0");
  if (operands.slopes && spec.alibi_align != Align::bottom_right)
    fail("alibi_align is top_left; allowed: bottom_right");
}

}  // namespace

void decode(const Spec& spec, const Operands& operands, const KvCache& cache,
            std::span<const int64_t> sequences, kernel::Parallel& parallel) {
  check_spec(spec, operands);
  const KvCache::Shape& shape = cache.shape();
  const auto entries = static_cast<int64_t>(sequences.size());
  const KvCache::Batch batch = cache.batch(sequences);
  // Keys and values as far as sizes go; their data is the pool's.
  Operands all = operands;
  all.k = ConstAnyView(batch.pages.k.data, operands.q.dtype,
                       {entries, shape.kv_heads, batch.keys, shape.key_size}, {0, 0, 0, 1});
  all.v = ConstAnyView(batch.pages.v.data, operands.q.dtype,
                       {entries, shape.kv_heads, batch.keys, shape.value_size}, {0, 0, 0, 1});
  check_form(spec, all);
  if (entries * operands.q.size[1] * operands.q.size[2] == 0) return;

  Mask mask = spec.mask & Mask::causal(Align::bottom_right);
  if (shape.window > 0) mask = mask & Mask::window(shape.window - 1, -1, Align::bottom_right);
  // The last position sees all that its entry has: nothing to ask for.
  const bool sees_everything = operands.q.size[2] == 1 && shape.window == 0 && spec.mask.sees_everything();
  std::optional<EntryMasks> masks;
  if (!sees_everything) masks.emplace(mask, operands.q.size[2], batch);
  const BoundMask none({}, operands.q.size[2], batch.keys);
  kernel::Forward problem = lower(spec, all, none);
  if (masks) problem.mask = kernel::tile_mask_of(*masks);
  problem.pages = batch.pages;
  problem.k.data = problem.v.data = nullptr;
  problem.alibi_offset = 0;
  kernel::ForwardTiling tiling;  // of packed keys, where a row does not depend on the others
  if (!spec.row_invariant) tiling = kernel::choose_forward_tiling(problem);
  const Scratch scratch(kernel::forward_workspace(problem, tiling, parallel.workers()));
  kernel::forward(problem, tiling, scratch.bytes(), parallel);
}

}  // namespace regard::attention
