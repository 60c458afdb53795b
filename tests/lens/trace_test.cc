#include "regard/lens/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/lens/made.h"

namespace regard::lens {
namespace {

TEST(Trace, LoopsAndKernelAgreeWithGroupedHeadsAndAMask) {
  const Recording recording =
      made::recording(made::words(33), {made::random_layer(6, 2, 33, 10, true, 11)}, true);
  for (const int64_t head : {0, 2, 5}) {
    for (const int64_t position : {0, 16, 32}) {
      const Trace out = trace(recording, 0, head, position);
      EXPECT_EQ(out.kv_head, head / 3);
      EXPECT_LT(out.largest_difference, 1e-5);
      EXPECT_LT(out.largest_weight_difference, 1e-5);
      double sum = 0;
      for (const TraceKey& key : out.keys) {
        EXPECT_EQ(key.visible, key.position <= position);
        EXPECT_NEAR(key.dot, norm(out.q) * key.k_norm * key.cosine, 1e-9);
        sum += key.weight;
      }
      EXPECT_NEAR(sum, 1, 1e-12);
    }
  }
}

TEST(Trace, WithoutValuesItStopsAtTheWeights) {
  RecordedLayer layer = made::random_layer(2, 1, 8, 4, false, 12);
  layer.v.clear();
  layer.value_size = 0;
  const Recording recording = made::recording(made::words(8), {layer}, false);
  const Trace out = trace(recording, 0, 1, 3);
  EXPECT_TRUE(out.out.empty());
  EXPECT_LT(out.largest_weight_difference, 1e-5);
}

TEST(Trace, RefusesWhatIsNotThere) {
  const Recording recording =
      made::recording(made::words(8), {made::random_layer(2, 1, 8, 4, false, 13)}, false);
  EXPECT_THROW(trace(recording, 1, 0, 0), std::invalid_argument);
  EXPECT_THROW(trace(recording, 0, 2, 0), std::invalid_argument);
  EXPECT_THROW(trace(recording, 0, 0, 8), std::invalid_argument);
}

TEST(Trace, JsonHoldsEveryStep) {
  const Recording recording =
      made::recording(made::words(8), {made::random_layer(2, 1, 8, 4, false, 14)}, false);
  const nlohmann::json json = to_json(trace(recording, 0, 0, 2));
  EXPECT_EQ(json.at("keys").size(), 8U);
  for (const char* field : {"dot", "k_norm", "cosine", "score", "weight", "visible"}) {
    EXPECT_TRUE(json.at("keys").at(0).contains(field)) << field;
  }
  EXPECT_EQ(json.at("out").size(), 4U);
  EXPECT_EQ(json.at("kernel_out").size(), 4U);
}

}  // namespace
}  // namespace regard::lens
