#pragma once

#include <cstdint>

namespace regard::kernel {

// A caller's own change of the scores, one call a tile: between scale (and softcap) and bias, mask, softmax.
// Called from many threads at once; must be pure. apply == nullptr: none.
struct ScoreTile {
  const void* self = nullptr;

  // Turns the scores of pairs (row + r, key + c), r < rows, c < columns, in place: scores[r * row_step + c],
  // in natural units. derivatives, unless nullptr, takes d new / d old in the same layout. Pairs that the
  // mask hides may be among them; what they become does not matter.
  void (*apply)(const void* self, int64_t batch, int64_t head, int64_t row, int64_t rows, int64_t key,
                int64_t columns, int64_t row_step, float* scores, float* derivatives) = nullptr;

  explicit operator bool() const { return apply != nullptr; }
};

}  // namespace regard::kernel
