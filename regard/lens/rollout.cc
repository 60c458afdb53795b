#include "regard/lens/rollout.h"

#include <algorithm>
#include <stdexcept>

namespace regard::lens {
namespace {

constexpr int64_t kRows = 64;

void require_all_layers(const Recording& recording) {
  if (static_cast<int64_t>(recording.layers.size()) != recording.model_layers || recording.layers.empty()) {
    throw std::invalid_argument("rollout chains all layers: " + std::to_string(recording.layers.size()) +
                                " of " + std::to_string(recording.model_layers) + " were kept");
  }
}

// rows [count, n] times (0.5 A + 0.5 I) of a layer.
void multiply(const RecordedLayer& layer, std::vector<float>& rows, int64_t count) {
  const int64_t n = layer.tokens;
  std::vector<float> out(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) out[i] = 0.5F * rows[i];
  const float share = 0.5F / static_cast<float>(layer.heads);
  for (int64_t head = 0; head < layer.heads; ++head) {
    for (int64_t first = 0; first < n; first += kRows) {
      const int64_t tile_rows = std::min(kRows, n - first);
      bool needed = false;
      for (int64_t c = 0; c < count && !needed; ++c) {
        for (int64_t r = 0; r < tile_rows; ++r) needed |= rows[static_cast<size_t>(c * n + first + r)] != 0;
      }
      if (!needed) continue;
      const std::vector<float> tile = layer.weights(head, first, tile_rows, 0, n);
      for (int64_t c = 0; c < count; ++c) {
        float* to = out.data() + c * n;
        for (int64_t r = 0; r < tile_rows; ++r) {
          const float factor = share * rows[static_cast<size_t>(c * n + first + r)];
          if (factor == 0) continue;
          const float* from = tile.data() + r * n;
          for (int64_t j = 0; j < n; ++j) to[j] += factor * from[j];
        }
      }
    }
  }
  rows.swap(out);
}

}  // namespace

std::vector<float> rollout_row(const Recording& recording, int64_t position) {
  require_all_layers(recording);
  if (position < 0 || position >= recording.size()) {
    throw std::invalid_argument("position " + std::to_string(position) + " is outside 0 to " +
                                std::to_string(recording.size() - 1));
  }
  std::vector<float> row(static_cast<size_t>(recording.size()));
  row[static_cast<size_t>(position)] = 1;
  for (auto layer = recording.layers.rbegin(); layer != recording.layers.rend(); ++layer)
    multiply(*layer, row, 1);
  return row;
}

std::vector<float> rollout(const Recording& recording) {
  require_all_layers(recording);
  const int64_t n = recording.size();
  if (n > kRolloutLimit) {
    throw std::invalid_argument("the whole rollout takes at most " + std::to_string(kRolloutLimit) +
                                " tokens; this text has " + std::to_string(n));
  }
  std::vector<float> rows(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) rows[static_cast<size_t>(i * n + i)] = 1;
  for (auto layer = recording.layers.rbegin(); layer != recording.layers.rend(); ++layer)
    multiply(*layer, rows, n);
  return rows;
}

}  // namespace regard::lens
