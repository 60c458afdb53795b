#include "regard/attention/custom.h"

#include <algorithm>

#include "regard/attention/lower.h"
#include "regard/attention/row_words.h"
#include "regard/attention/scratch.h"

namespace regard::attention::internal {
namespace {

using kernel::Span;

// The Spec's mask and the caller's together.
class BothMasks {
 public:
  BothMasks(const BoundMask& bound, const MaskRow& row)
      : inner_(bound.tile_mask()), row_(row), keys_(bound.keys()) {}

  // See kernel::TileMask.
  Span next_span(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from) const {
    for (Span inner = inner_span(batch, head, row, rows, from); inner.begin < inner.end;
         inner = inner_span(batch, head, row, rows, inner.end)) {
      const Span span = scan_rows(rows, inner.begin, inner.end, [&](int64_t r, int64_t key, int64_t columns) {
        return row_.bits(row_.self, batch, head, row + r, key, columns);
      });
      if (span.begin < span.end) return {span.begin, span.end, inner.full && span.full};
    }
    return {};
  }

  void bits(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key, int64_t columns,
            uint64_t* words) const {
    columns = std::min(columns, keys_ - key);
    std::fill(words, words + rows, low_bits(columns));
    if (inner_) inner_.bits(inner_.self, batch, head, row, rows, key, columns, words);
    restrict_rows(rows, words,
                  [&](int64_t r) { return row_.bits(row_.self, batch, head, row + r, key, columns); });
  }

 private:
  Span inner_span(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from) const {
    if (inner_) return inner_.next_span(inner_.self, batch, head, row, rows, from);
    return from < keys_ ? Span{from, keys_, true} : Span{};
  }

  kernel::TileMask inner_;
  MaskRow row_;
  int64_t keys_;
};

}  // namespace

void run_custom(const Spec& spec, const Operands& operands, const kernel::ScoreTile& score,
                const MaskRow& mask, kernel::Parallel& parallel) {
  check(spec, operands);
  const kernel::Extents& q = operands.q.size;
  if (q[0] * q[1] * q[2] == 0) return;
  const BoundMask bound = bind_mask(spec, operands);
  const BothMasks both(bound, mask);
  kernel::Forward problem = lower(spec, operands, bound);
  problem.score = score;
  problem.mask = kernel::tile_mask_of(both);
  const kernel::ForwardTiling tiling = kernel::choose_forward_tiling(problem);
  const Scratch scratch(kernel::forward_workspace(problem, tiling, parallel.workers()));
  kernel::forward(problem, tiling, scratch.bytes(), parallel);
}

void run_custom_backward(const Spec& spec, const Operands& operands, const kernel::ScoreTile& score,
                         const MaskRow& mask, const Arriving& arriving, const Gradients& gradients,
                         kernel::Parallel& parallel) {
  check_backward(spec, operands, arriving, gradients);
  check_data(operands);
  const BoundMask bound = bind_mask(spec, operands);
  const BothMasks both(bound, mask);
  kernel::Backward problem = lower_backward(spec, operands, bound, arriving, gradients);
  problem.forward.score = score;
  problem.forward.mask = kernel::tile_mask_of(both);
  const kernel::BackwardTiling tiling = kernel::choose_backward_tiling(problem);
  const Scratch scratch(kernel::backward_workspace(problem, tiling, parallel.workers()));
  kernel::backward(problem, tiling, scratch.bytes(), parallel);
}

}  // namespace regard::attention::internal
