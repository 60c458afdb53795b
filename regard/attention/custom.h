#pragma once

#include <cstdint>
#include <type_traits>

#include "regard/attention/backward.h"
#include "regard/attention/dual.h"
#include "regard/attention/spec.h"
#include "regard/kernel/parallel.h"
#include "regard/kernel/score_tile.h"

// Attention whose scores and mask the caller writes as two functions of one pair, as FlexAttention has them
// (Dong et al. 2024), with a backward:
//
//   const auto score = [&](auto s, int64_t b, int64_t h, int64_t i, int64_t j) { return s + table[i - j + n];
//   }; const auto mask = [](int64_t b, int64_t h, int64_t i, int64_t j) { return j <= i; };
//   custom_attention(spec, operands, score, mask);
//
// Score: from the scaled (and capped) score of query i and key j to the one that bias, mask and softmax see;
// it is generic in s, because its derivative by s is taken with dual numbers. What the functions capture gets
// no gradient; a table that must learn is a bias. Mask: true = may attend, and the Spec's own mask holds too.
// Both are called from several threads and must be pure. Tiles that the mask leaves empty are skipped;
// finding them calls it for every pair that the Spec's mask lets through, so what a Spec can say is cheaper
// said there. Cost: about one more call of each function per visible pair and pass (docs/performance.md).
namespace regard::attention {

// One row of a caller's mask: bit c says whether (row, key + c) may attend; columns <= 64.
struct MaskRow {
  const void* self = nullptr;
  uint64_t (*bits)(const void* self, int64_t batch, int64_t head, int64_t row, int64_t key,
                   int64_t columns) = nullptr;
};

namespace internal {

void run_custom(const Spec& spec, const Operands& operands, const kernel::ScoreTile& score,
                const MaskRow& mask, kernel::Parallel& parallel);
void run_custom_backward(const Spec& spec, const Operands& operands, const kernel::ScoreTile& score,
                         const MaskRow& mask, const Arriving& arriving, const Gradients& gradients,
                         kernel::Parallel& parallel);

template <class Score>
constexpr bool kHasDerivative = std::is_invocable_v<const Score&, Dual, int64_t, int64_t, int64_t, int64_t>;

template <class Score>
kernel::ScoreTile score_tile(const Score& score) {
  return {&score, [](const void* self, int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key,
                     int64_t columns, int64_t row_step, float* scores, float* derivatives) {
            const Score& function = *static_cast<const Score*>(self);
            for (int64_t r = 0; r < rows; ++r) {
              float* at = scores + r * row_step;
              if constexpr (kHasDerivative<Score>) {
                if (derivatives != nullptr) {
                  float* slopes = derivatives + r * row_step;
                  for (int64_t c = 0; c < columns; ++c) {
                    const Dual result = function(Dual(at[c], 1), batch, head, row + r, key + c);
                    at[c] = result.value;
                    slopes[c] = result.slope;
                  }
                  continue;
                }
              }
              for (int64_t c = 0; c < columns; ++c) at[c] = function(at[c], batch, head, row + r, key + c);
            }
          }};
}

template <class Mask>
MaskRow mask_row(const Mask& mask) {
  return {&mask,
          [](const void* self, int64_t batch, int64_t head, int64_t row, int64_t key, int64_t columns) {
            const Mask& function = *static_cast<const Mask*>(self);
            uint64_t word = 0;
            for (int64_t c = 0; c < columns; ++c) {
              word |= uint64_t{static_cast<bool>(function(batch, head, row, key + c))} << c;
            }
            return word;
          }};
}

}  // namespace internal

// A mask function that lets everything through.
inline constexpr auto kNoMask = [](int64_t, int64_t, int64_t, int64_t) { return true; };

// As attention(); throws like it.
template <class Score, class Mask>
void custom_attention(const Spec& spec, const Operands& operands, const Score& score, const Mask& mask,
                      kernel::Parallel& parallel = kernel::default_parallel()) {
  internal::run_custom(spec, operands, internal::score_tile(score), internal::mask_row(mask), parallel);
}

// As backward(); the functions must be those of the forward.
template <class Score, class Mask>
void custom_backward(const Spec& spec, const Operands& operands, const Score& score, const Mask& mask,
                     const Arriving& arriving, const Gradients& gradients,
                     kernel::Parallel& parallel = kernel::default_parallel()) {
  static_assert(internal::kHasDerivative<Score>,
                "the score function must take its score as `auto`, so that its derivative can be taken");
  internal::run_custom_backward(spec, operands, internal::score_tile(score), internal::mask_row(mask),
                                arriving, gradients, parallel);
}

}  // namespace regard::attention
