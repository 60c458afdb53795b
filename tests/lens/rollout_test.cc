#include "regard/lens/rollout.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/lens/made.h"

namespace regard::lens {
namespace {

Recording three_layers(int64_t n) {
  std::vector<RecordedLayer> layers;
  for (uint32_t l = 0; l < 3; ++l) {
    layers.push_back(made::random_layer(4, 2, n, 8, l == 1, 10 * l, Precision::f32, l));
  }
  return made::recording(made::words(n), std::move(layers), false);
}

TEST(Rollout, EqualsTheProductOfHalfAttentionHalfIdentity) {
  constexpr int64_t n = 9;
  const Recording recording = three_layers(n);
  std::vector<double> product(n * n);
  for (int64_t i = 0; i < n; ++i) product[static_cast<size_t>(i * n + i)] = 1;
  for (const RecordedLayer& layer : recording.layers) {  // first layer first: A_3 A_2 A_1
    std::vector<double> mean(n * n);
    for (int64_t head = 0; head < layer.heads; ++head) {
      const std::vector<float> map = layer.weights(head, 0, n, 0, n);
      for (size_t i = 0; i < map.size(); ++i) mean[i] += 0.5 * map[i] / static_cast<double>(layer.heads);
    }
    for (int64_t i = 0; i < n; ++i) mean[static_cast<size_t>(i * n + i)] += 0.5;
    std::vector<double> next(n * n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t m = 0; m < n; ++m) {
          next[static_cast<size_t>(i * n + j)] +=
              mean[static_cast<size_t>(i * n + m)] * product[static_cast<size_t>(m * n + j)];
        }
      }
    }
    product = next;
  }
  const std::vector<float> whole = rollout(recording);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], product[i], 1e-6);
  for (int64_t position = 0; position < n; ++position) {
    const std::vector<float> row = rollout_row(recording, position);
    EXPECT_NEAR(std::accumulate(row.begin(), row.end(), 0.0), 1, 1e-5);
    for (int64_t j = 0; j < n; ++j) {
      EXPECT_NEAR(row[static_cast<size_t>(j)], product[static_cast<size_t>(position * n + j)], 1e-6);
    }
  }
}

TEST(Rollout, RefusesTextsAboveTheLimitAndMissingLayers) {
  EXPECT_THROW(rollout(three_layers(kRolloutLimit + 1)), std::invalid_argument);
  Recording recording = three_layers(5);
  recording.layers.pop_back();
  EXPECT_THROW(rollout_row(recording, 0), std::invalid_argument);
}

}  // namespace
}  // namespace regard::lens
