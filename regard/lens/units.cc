#include "regard/lens/units.h"

#include <algorithm>
#include <stdexcept>

namespace regard::lens {

std::vector<Unit> token_units(const Recording& recording) {
  std::vector<Unit> units;
  units.reserve(recording.tokens.size());
  for (size_t i = 0; i < recording.tokens.size(); ++i) {
    const Token& token = recording.tokens[i];
    units.push_back({token.text, static_cast<int64_t>(i), 1, token.special, token.punctuation});
  }
  return units;
}

void merge_keys(std::span<const float> weights, std::span<const Unit> units, std::span<float> out) {
  for (size_t u = 0; u < units.size(); ++u) {
    float sum = 0;
    for (int64_t t = units[u].first; t < units[u].first + units[u].count; ++t) {
      sum += weights[static_cast<size_t>(t)];
    }
    out[u] = sum;
  }
}

std::vector<float> unit_row(const RecordedLayer& layer, int64_t head, std::span<const Unit> units,
                            int64_t unit) {
  const Unit& rows = units[static_cast<size_t>(unit)];
  const std::vector<float> weights = layer.weights(head, rows.first, rows.count, 0, layer.tokens);
  std::vector<float> merged(units.size());
  std::vector<float> out(units.size());
  for (int64_t r = 0; r < rows.count; ++r) {
    merge_keys({weights.data() + r * layer.tokens, static_cast<size_t>(layer.tokens)}, units, merged);
    for (size_t u = 0; u < units.size(); ++u) out[u] += merged[u] / static_cast<float>(rows.count);
  }
  return out;
}

std::vector<float> unit_column(const RecordedLayer& layer, int64_t head, std::span<const Unit> units,
                               int64_t unit) {
  const Unit& keys = units[static_cast<size_t>(unit)];
  const std::vector<float> weights = layer.weights(head, 0, layer.tokens, keys.first, keys.count);
  std::vector<float> out(units.size());
  for (size_t u = 0; u < units.size(); ++u) {
    const auto begin = weights.begin() + units[u].first * keys.count;
    float sum = 0;
    for (auto at = begin; at != begin + units[u].count * keys.count; ++at) sum += *at;
    out[u] = sum / static_cast<float>(units[u].count);
  }
  return out;
}

std::vector<float> unit_map(const RecordedLayer& layer, int64_t head, std::span<const Unit> units) {
  const int64_t n = static_cast<int64_t>(units.size());
  if (n > kMapLimit) {
    throw std::invalid_argument("a whole map takes at most " + std::to_string(kMapLimit) +
                                " rows; this text has " + std::to_string(n));
  }
  std::vector<float> map;
  map.reserve(static_cast<size_t>(n * n));
  for (int64_t u = 0; u < n; ++u) {
    const std::vector<float> row = unit_row(layer, head, units, u);
    map.insert(map.end(), row.begin(), row.end());
  }
  return map;
}

float hide_special(std::span<float> row, std::span<const Unit> units) {
  float hidden = 0;
  float left = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    (units[u].special ? hidden : left) += row[u];
  }
  for (size_t u = 0; u < units.size(); ++u) {
    row[u] = units[u].special || left <= 0 ? 0 : row[u] / left;
  }
  return hidden;
}

int64_t unit_of_token(std::span<const Unit> units, int64_t token) {
  for (size_t u = 0; u < units.size(); ++u) {
    if (token >= units[u].first && token < units[u].first + units[u].count) return static_cast<int64_t>(u);
  }
  throw std::invalid_argument("token " + std::to_string(token) + " is in no word of the text");
}

}  // namespace regard::lens
