#include "regard/lens/mixture.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/lens/made.h"

namespace regard::lens {
namespace {

std::vector<Unit> units(const std::vector<std::string>& words) {
  return made::recording(words, {}, false).words;
}

TEST(Mixture, NamesWordsByWeightAndKeepsSinksApart) {
  const auto words = units({"[CLS]", "it", "animal", "street", "was", "[SEP]"});
  const std::vector<float> row{0.2F, 0.14F, 0.21F, 0.04F, 0.01F, 0.4F};
  const Mixture out = mixture(row, words, false, 2);
  ASSERT_EQ(out.terms.size(), 2U);
  EXPECT_EQ(out.terms[0].unit, 2);
  EXPECT_EQ(out.terms[1].unit, 1);
  ASSERT_EQ(out.sinks.size(), 2U);
  EXPECT_EQ(out.sinks[0].unit, 5);
  EXPECT_NEAR(out.sink_weight, 0.6, 1e-6);
  EXPECT_NEAR(out.rest, 0.05, 1e-6);
  EXPECT_EQ(out.rest_units, 2);
}

TEST(Mixture, TheFirstTokenOfACausalModelIsASink) {
  const auto words = units({"Once", "upon", "a", "time"});
  const Mixture out = mixture(std::vector<float>{0.9F, 0.05F, 0.03F, 0.02F}, words, true);
  ASSERT_EQ(out.sinks.size(), 1U);
  EXPECT_EQ(out.sinks[0].unit, 0);
  EXPECT_EQ(mixture(std::vector<float>{0.9F, 0.05F, 0.03F, 0.02F}, words, false).sinks.size(), 0U);
}

TEST(Mixture, PrintedHundredthsSumToOne) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto words = units(made::words(3 + seed % 12));
    std::vector<float> row = made::noise(words.size(), seed);
    double sum = 0;
    for (float& w : row) sum += w = std::exp(2 * w);
    for (float& w : row) w = static_cast<float>(w / sum);
    const Mixture out = mixture(row, words, seed % 2 == 0);
    const std::vector<int> parts = hundredths(out);
    ASSERT_EQ(parts.size(), out.terms.size() + 2);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), 0), 100) << seed;
    for (const int part : parts) EXPECT_GE(part, 0) << seed;
    if (out.rest_units == 0) {
      EXPECT_EQ(parts.back(), 0) << seed;
    }
    EXPECT_NEAR(parts.front(), out.terms.front().weight * 100, 1.6) << seed;
  }
}

}  // namespace
}  // namespace regard::lens
