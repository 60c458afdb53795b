#include "regard/lens/recording.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "regard/lens/survey.h"
#include "regard/lens/units.h"
#include "tests/lens/made.h"

namespace regard::lens {
namespace {

TEST(Recording, WeightsAreTheSoftmaxOfScaledProducts) {
  for (const bool causal : {false, true}) {
    const RecordedLayer layer = made::random_layer(4, 2, 37, 12, causal, 5);
    for (const int64_t head : {0, 3}) {
      for (const int64_t row : {0, 17, 36}) {
        const std::vector<float> q = layer.query(head, row);
        std::vector<double> expected(37);
        double sum = 0;
        for (int64_t j = 0; j < (causal ? row + 1 : 37); ++j) {
          const std::vector<float> k = layer.key(head, j);
          double dot = 0;
          for (size_t c = 0; c < k.size(); ++c) dot += static_cast<double>(q[c]) * static_cast<double>(k[c]);
          sum += expected[static_cast<size_t>(j)] = std::exp(dot * static_cast<double>(layer.scale()));
        }
        const std::vector<float> weights = layer.weights_row(head, row);
        for (size_t j = 0; j < 37; ++j) EXPECT_NEAR(weights[j], expected[j] / sum, 1e-5);
      }
    }
  }
}

TEST(Recording, HalfPrecisionIsCloseAndNotExact) {
  const RecordedLayer exact = made::random_layer(1, 1, 50, 16, false, 6);
  const RecordedLayer half = made::random_layer(1, 1, 50, 16, false, 6, Precision::f16);
  EXPECT_EQ(half.q.size() * 2, exact.q.size());
  const std::vector<float> a = exact.weights(0, 0, 50, 0, 50);
  const std::vector<float> b = half.weights(0, 0, 50, 0, 50);
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  EXPECT_GT(largest, 1e-6F);
  EXPECT_LT(largest, 4e-3F);
}

TEST(Recording, VisibleKeysFollowCausalAndWindowMasks) {
  RecordedLayer layer = made::random_layer(1, 1, 20, 4, true, 7);
  EXPECT_EQ(layer.visible(0, 6).count, 7);
  layer.spec.mask = layer.spec.mask & attention::Mask::window(3, -1, attention::Align::top_left);
  EXPECT_EQ(layer.visible(0, 6).begin, 3);
  EXPECT_EQ(layer.visible(0, 6).end, 7);
  EXPECT_EQ(layer.visible(0, 1).count, 2);
}

TEST(Recording, TilesOutsideTheTextAreRefused) {
  const RecordedLayer layer = made::random_layer(2, 1, 8, 4, false, 8);
  EXPECT_THROW(layer.weights(2, 0, 1, 0, 8), std::invalid_argument);
  EXPECT_THROW(layer.weights(0, 7, 2, 0, 8), std::invalid_argument);
  EXPECT_THROW(layer.weights(0, 0, 1, 4, 5), std::invalid_argument);
}

TEST(Survey, ColumnSumsBlocksAndEntropyAgreeWithTheWholeMap) {
  constexpr int64_t n = 150;  // more than one tile of rows
  const Recording recording =
      made::recording(made::words(n), {made::random_layer(2, 1, n, 16, true, 9)}, true);
  SurveyOptions options;
  options.blocks = 7;
  const std::vector<HeadSurvey> heads = survey(recording, token_units(recording), options);
  ASSERT_EQ(heads.size(), 2U);
  const Blocks blocks = choose_blocks(n, 7);
  for (const HeadSurvey& head : heads) {
    const std::vector<float> map = recording.layers.front().weights(head.head, 0, n, 0, n);
    std::vector<double> columns(n);
    std::vector<float> largest(static_cast<size_t>(blocks.count * blocks.count));
    for (int64_t i = 0; i < n; ++i) {
      double entropy = 0;
      for (int64_t j = 0; j < n; ++j) {
        const float w = map[static_cast<size_t>(i * n + j)];
        columns[static_cast<size_t>(j)] += w;
        if (w > 0) entropy -= w * std::log(static_cast<double>(w));
        float& block = largest[static_cast<size_t>(i / blocks.tokens * blocks.count + j / blocks.tokens)];
        block = std::max(block, w);
      }
      EXPECT_NEAR(head.row_entropy[static_cast<size_t>(i)], entropy, 1e-5);
    }
    for (size_t j = 0; j < columns.size(); ++j) EXPECT_NEAR(head.column_sums[j], columns[j], 1e-4);
    for (size_t b = 0; b < largest.size(); ++b) EXPECT_FLOAT_EQ(head.block_max[b], largest[b]);
    const double mass = std::accumulate(columns.begin(), columns.end(), 0.0);
    EXPECT_NEAR(mass, n, 1e-3);
  }
}

TEST(Survey, FindsTheMostPointedLookOfAWord) {
  std::vector<float> logits(100);
  logits[4 * 10 + 7] = 5;  // "w4" looks at "w7"
  logits[6 * 10 + 9] = 9;  // stronger, but at a special token
  logits[2 * 10 + 3] = 9;  // stronger, but at punctuation
  std::vector<std::string> words = made::words(10);
  words[9] = "[SEP]";
  words[3] = ".";
  const Recording recording = made::recording(words, {made::layer_of_logits({logits}, 10, false)}, false);
  const HeadSurvey head = survey(recording, recording.words).front();
  EXPECT_EQ(head.best_row, 4);
  EXPECT_EQ(head.best_key, 7);
  EXPECT_NEAR(head.best_weight, std::exp(5.0) / (std::exp(5.0) + 9), 1e-5);
  EXPECT_NEAR(head.best_lift, head.best_weight * 10, 1e-4);
}

}  // namespace
}  // namespace regard::lens
