#include "regard/attention/custom.h"

#include <algorithm>
#include <bit>

#include "regard/attention/lower.h"
#include "regard/attention/scratch.h"

namespace regard::attention::internal {
namespace {

using kernel::Span;

constexpr int64_t kWord = 64;

// The Spec's mask and the caller's together.
class BothMasks {
 public:
  BothMasks(const BoundMask& bound, const MaskRow& row)
      : inner_(bound.tile_mask()), row_(row), keys_(bound.keys()) {}

  kernel::TileMask tile_mask() const {
    return {this,
            [](const void* self, int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from) {
              return static_cast<const BothMasks*>(self)->next_span(batch, head, row, rows, from);
            },
            [](const void* self, int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key,
               int64_t columns, uint64_t* words) {
              static_cast<const BothMasks*>(self)->bits(batch, head, row, rows, key, columns, words);
            }};
  }

 private:
  Span inner_span(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from) const {
    if (inner_) return inner_.next_span(inner_.self, batch, head, row, rows, from);
    return from < keys_ ? Span{from, keys_, true} : Span{};
  }

  // The first run of 64-key words inside the Spec's spans that are not empty, all full or all not.
  Span next_span(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t from) const {
    for (Span inner = inner_span(batch, head, row, rows, from); inner.begin < inner.end;
         inner = inner_span(batch, head, row, rows, inner.end)) {
      Span found{0, 0, false};
      for (int64_t key = inner.begin; key < inner.end; key += kWord) {
        const int64_t columns = std::min(kWord, inner.end - key);
        const uint64_t all = columns == kWord ? ~uint64_t{0} : (uint64_t{1} << columns) - 1;
        uint64_t any = 0;
        uint64_t every = all;
        for (int64_t r = 0; r < rows; ++r) {
          const uint64_t word = row_.bits(row_.self, batch, head, row + r, key, columns);
          any |= word;
          every &= word;
        }
        const bool full = inner.full && every == all;
        if (found.begin == found.end) {
          if (any == 0) continue;
          found = {key + std::countr_zero(any), 0, full};
        } else if (any == 0 || full != found.full) {
          return found;
        }
        found.end = key + kWord - std::countl_zero(any);
      }
      if (found.begin < found.end) return found;
    }
    return {};
  }

  void bits(int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key, int64_t columns,
            uint64_t* words) const {
    columns = std::min(columns, keys_ - key);
    const uint64_t all = columns >= kWord ? ~uint64_t{0} : (uint64_t{1} << columns) - 1;
    std::fill(words, words + rows, all);
    if (inner_) inner_.bits(inner_.self, batch, head, row, rows, key, columns, words);
    for (int64_t r = 0; r < rows; ++r) {
      if (words[r] != 0) words[r] &= row_.bits(row_.self, batch, head, row + r, key, columns);
    }
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
  problem.mask = both.tile_mask();
  const kernel::ForwardTiling tiling = kernel::choose_forward_tiling(problem);
  const Scratch scratch(kernel::forward_workspace(problem, tiling, parallel.workers()));
  kernel::forward(problem, tiling, scratch.bytes(), parallel);
}

void run_custom_backward(const Spec& spec, const Operands& operands, const kernel::ScoreTile& score,
                         const MaskRow& mask, const Arriving& arriving, const Gradients& gradients,
                         kernel::Parallel& parallel) {
  check(spec, operands);
  check_backward(spec, operands, arriving, gradients);
  const BoundMask bound = bind_mask(spec, operands);
  const BothMasks both(bound, mask);
  kernel::Backward problem = lower_backward(spec, operands, bound, arriving, gradients);
  problem.forward.score = score;
  problem.forward.mask = both.tile_mask();
  const kernel::BackwardTiling tiling = kernel::choose_backward_tiling(problem);
  const Scratch scratch(kernel::backward_workspace(problem, tiling, parallel.workers()));
  kernel::backward(problem, tiling, scratch.bytes(), parallel);
}

}  // namespace regard::attention::internal
