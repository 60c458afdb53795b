#include "regard/train/zipf_markov.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace regard::train {
namespace {

constexpr ZipfMarkov kSmall{.items = 100, .classes = 3, .successors = 4, .noise = 0.2, .seed = 3};

TEST(ZipfMarkov, FrequenciesFallAsTheirRank) {
  ZipfMarkov language = kSmall;
  language.noise = 1;  // drawn without looking back
  const auto text = zipf_markov(language, 200000, 0);
  std::vector<double> counts(100);
  for (const int32_t token : text) ++counts.at(size_t(token));
  double harmonic = 0;
  for (int i = 1; i <= 100; ++i) harmonic += 1.0 / i;
  for (const int rank : {0, 1, 4, 20}) {
    const double expected = 200000 / (harmonic * (rank + 1));
    EXPECT_NEAR(counts[size_t(rank)], expected, 5 * std::sqrt(expected)) << rank;
  }
}

TEST(ZipfMarkov, ItsLossIsTheEntropyOfWhatFollows) {
  const auto text = zipf_markov(kSmall, 100000, 0);
  // Counted: how often each token follows each pair of classes.
  std::vector<std::vector<double>> counts(9, std::vector<double>(100));
  for (size_t i = 2; i < text.size(); ++i)
    ++counts[size_t(text[i - 2] % 3 * 3 + text[i - 1] % 3)][size_t(text[i])];
  double entropy = 0;
  for (const auto& row : counts) {
    double all = 0;
    for (const double count : row) all += count;
    for (const double count : row)
      if (count > 0) entropy -= count * std::log(count / all);
  }
  entropy /= double(text.size());
  EXPECT_NEAR(zipf_markov_loss(kSmall, text), entropy, 0.01);
  // A language that looks back is easier than one that does not.
  ZipfMarkov noise = kSmall;
  noise.noise = 1;
  EXPECT_LT(entropy, 0.75 * zipf_markov_loss(noise, zipf_markov(noise, 100000, 0)));
}

TEST(ZipfMarkov, ASeedAndAStreamAreTheText) {
  const auto text = zipf_markov(kSmall, 500, 0);
  EXPECT_EQ(zipf_markov(kSmall, 500, 0), text);
  EXPECT_NE(zipf_markov(kSmall, 500, 1), text);
  // Another stream is the same language, another seed is not.
  const auto other = zipf_markov(kSmall, 20000, 1);
  ZipfMarkov foreign = kSmall;
  foreign.seed = 4;
  EXPECT_LT(zipf_markov_loss(kSmall, other) + 0.3, zipf_markov_loss(foreign, other));
}

TEST(ZipfMarkov, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(zipf_markov({.items = 0}, 5, 0), std::invalid_argument);
  EXPECT_THROW(zipf_markov({.noise = 1.5}, 5, 0), std::invalid_argument);
}

}  // namespace
}  // namespace regard::train
