#include "regard/attention/observe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "regard/attention/attention.h"
#include "regard/attention/reference.h"
#include "tests/attention/problem.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

namespace regard::attention {
namespace {

using testing::is_close;
using testing::Problem;
using testing::Sizes;

const Observe kAll{
    .entropy = true, .row_max = true, .column_sums = true, .top_k = 4, .block_rows = 24, .block_keys = 40};

Observation observe_all(Problem& problem, kernel::Parallel& parallel = kernel::default_parallel()) {
  const Operands operands = problem.operands();
  return observe(kAll, problem.spec, operands, parallel);
}

// Several row pieces and key tiles, GQA, a mask with holes, sinks.
Problem large() {
  Problem problem({.B = 2, .Hq = 4, .Hkv = 2, .Lq = 300, .Lk = 1100, .Dk = 16, .Dv = 4}, 1);
  problem.spec.mask = Mask::window(600, 20, Align::bottom_right);
  problem.add_dense_mask({1, 1, 300, 1100}, 0.6);
  std::fill(problem.mask.begin() + 5 * 1100, problem.mask.begin() + 6 * 1100, 0);  // row 5 sees nothing
  problem.add_sinks();
  return problem;
}

TEST(Observe, EqualsStatisticsOfTheMaterialisedWeights) {
  Problem problem = large();
  const Observation seen = observe_all(problem);
  const Reference plain = reference(problem.spec, problem.operands());
  const testing::Bound bound = testing::float32_bound(testing::largest_finite(plain.logits));
  EXPECT_TRUE(is_close(seen.entropy, plain.entropy, bound, 1.0));
  EXPECT_TRUE(is_close(seen.column_sums, plain.column_sums, bound));
  const int64_t rows = 2 * 4 * 300;
  const int64_t across = (1100 + 39) / 40;
  const int64_t down = (300 + 23) / 24;
  std::vector<double> row_max(rows, -INFINITY);
  std::vector<double> top(rows * 4, 0.0);
  std::vector<double> sink(rows, 1.0);
  std::vector<double> mean(8 * down * across, 0.0);
  std::vector<double> highest(8 * down * across, 0.0);
  for (int64_t row = 0; row < rows; ++row) {
    const double* p = plain.weights.data() + row * 1100;
    std::vector<int64_t> order(1100);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return p[a] > p[b]; });
    for (int64_t n = 0; n < 4; ++n) top[row * 4 + n] = p[order[n]];
    const int64_t block_row = row / 300 * down + row % 300 / 24;
    for (int64_t j = 0; j < 1100; ++j) {
      row_max[row] = std::max(row_max[row], plain.logits[row * 1100 + j]);
      sink[row] -= p[j];
      mean[block_row * across + j / 40] += p[j];
      highest[block_row * across + j / 40] = std::max(highest[block_row * across + j / 40], p[j]);
    }
  }
  for (int64_t block = 0; block < static_cast<int64_t>(mean.size()); ++block) {
    const int64_t height = std::min<int64_t>(24, 300 - block / across % down * 24);
    mean[block] /= static_cast<double>(height * std::min<int64_t>(40, 1100 - block % across * 40));
  }
  EXPECT_TRUE(is_close(seen.row_max, row_max, bound));
  EXPECT_TRUE(is_close(seen.top_weights, top, bound));
  EXPECT_TRUE(is_close(seen.sink_mass, sink, bound));
  EXPECT_TRUE(is_close(seen.block_mean, mean, bound, 1e-6));
  EXPECT_TRUE(is_close(seen.block_max, highest, bound));
  for (int64_t row = 0; row < rows; ++row) {  // each key carries the weight that is said of it
    for (int64_t n = 0; n < 4; ++n) {
      const int64_t key = seen.top_keys[row * 4 + n];
      if (row % 300 == 5) {
        EXPECT_EQ(key, -1);
      } else {
        ASSERT_GE(key, 0);
        ASSERT_NEAR(plain.weights[row * 1100 + key], seen.top_weights[row * 4 + n], bound.max);
      }
    }
  }
}

TEST(Observe, AnEmptyRowHasNoEntropyNoMaximumAndNoKeys) {
  Problem problem = large();
  problem.sinks = {};
  const Observation seen = observe_all(problem);
  EXPECT_EQ(seen.entropy[5], 0.0F);
  EXPECT_EQ(seen.row_max[5], -INFINITY);
  EXPECT_EQ(seen.top_keys[20], -1);
  EXPECT_EQ(seen.top_weights[20], 0.0F);
  EXPECT_TRUE(seen.sink_mass.empty());
}

TEST(Observe, ColumnSumsAddUpToTheRowsThatSeeSomething) {
  Problem problem = large();
  problem.sinks = {};
  const Observation seen = observe_all(problem);
  for (int64_t head = 0; head < 8; ++head) {
    double sum = 0;
    for (int64_t j = 0; j < 1100; ++j) sum += seen.column_sums[head * 1100 + j];
    EXPECT_NEAR(sum, 299, 1e-3);  // row 5 sees nothing
  }
}

TEST(Observe, UniformCausalAttentionHasTheKnownNumbers) {
  Problem problem({.Lq = 4, .Lk = 4, .Dk = 2, .Dv = 1}, 2);
  problem.q.fill(0);
  problem.spec.mask = Mask::causal(Align::top_left);
  const Observation seen = observe_all(problem);
  EXPECT_TRUE(is_close(seen.column_sums, {2.0833333, 1.0833333, 0.5833333, 0.25}, {1e-6, 1e-6}));
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(seen.entropy[i], std::log(i + 1.0), 1e-6);
    for (int64_t n = 0; n < 4; ++n) {  // ties: lowest key first
      EXPECT_EQ(seen.top_keys[i * 4 + n], n <= i ? n : -1);
      EXPECT_NEAR(seen.top_weights[i * 4 + n], n <= i ? 1.0 / (i + 1.0) : 0.0, 1e-6);
    }
  }
}

TEST(Observe, EntropyOfAOneHotRowIsZeroNotNaN) {
  Problem problem({.Lk = 30, .Dk = 1, .Dv = 1}, 3);
  problem.q.fill(60);
  for (int64_t j = 0; j < 30; ++j) problem.k.set(0, 0, j, 0, j == 11 ? 120.0F : -120.0F);
  const Operands operands = problem.operands();
  const Observation seen = observe({.entropy = true, .top_k = 2}, problem.spec, operands);
  EXPECT_EQ(seen.entropy[0], 0.0F);
  EXPECT_FALSE(std::signbit(seen.entropy[0]));
  EXPECT_EQ(seen.top_keys[0], 11);
  EXPECT_EQ(seen.top_keys[1], 0) << "order is kept where weights are too small for float32";
}

TEST(Observe, NonFiniteMaskedKeysHaveNoInfluence) {
  Problem problem({.Lq = 20, .Lk = 50, .Dk = 4, .Dv = 1}, 4);
  problem.spec.mask = Mask::key_lengths();
  problem.lengths = {44};
  const Observation clean = observe_all(problem);
  for (int64_t j = 44; j < 50; ++j) problem.k.set(0, 0, j, 0, std::numeric_limits<float>::quiet_NaN());
  const Observation poisoned = observe_all(problem);
  EXPECT_EQ(poisoned.entropy, clean.entropy);
  EXPECT_EQ(poisoned.column_sums, clean.column_sums);
  EXPECT_EQ(poisoned.top_keys, clean.top_keys);
  EXPECT_EQ(poisoned.block_mean, clean.block_mean);
}

TEST(Observe, BitsDoNotDependOnTheNumberOfThreads) {
  Problem problem = large();
  kernel::Serial serial;
  const Observation one = observe_all(problem, serial);
  for (const int threads : {2, 3, 5}) {
    kernel::ThreadPool pool(threads);
    const Observation many = observe_all(problem, pool);
    EXPECT_EQ(many.entropy, one.entropy);
    EXPECT_EQ(many.column_sums, one.column_sums);
    EXPECT_EQ(many.top_keys, one.top_keys);
    EXPECT_EQ(many.top_weights, one.top_weights);
    EXPECT_EQ(many.block_mean, one.block_mean);
    EXPECT_EQ(many.block_max, one.block_max);
  }
}

TEST(Observe, NeedsNoValuesAndComputesOnlyWhatIsAsked) {
  Problem problem({.Lq = 5, .Lk = 6, .Dk = 3, .Dv = 2}, 5);
  Operands operands = problem.operands();
  operands.v = {};
  operands.out = {};
  const Observation seen = observe({.entropy = true}, problem.spec, operands);
  EXPECT_EQ(seen.entropy.size(), 5U);
  EXPECT_TRUE(seen.column_sums.empty());
  EXPECT_TRUE(seen.top_keys.empty());
  EXPECT_TRUE(seen.block_mean.empty());
  EXPECT_TRUE(seen.row_max.empty());
}

TEST(Observe, ChangesNoBitOfTheResult) {
  // Prefill in one block of keys and in two, with dropout, and few rows (the decode kernel).
  for (const Sizes& sizes : {Sizes{.Hq = 2, .Hkv = 1, .Lq = 70, .Lk = 300, .Dk = 8, .Dv = 20},
                             Sizes{.Lq = 20, .Lk = 4500, .Dk = 4, .Dv = 4},
                             Sizes{.B = 2, .Hq = 4, .Hkv = 2, .Lq = 1, .Lk = 700, .Dk = 16, .Dv = 16}}) {
    for (const double dropout : {0.0, 0.3, -1.0}) {
      Problem problem(sizes, 7);
      problem.spec.dropout = std::max(dropout, 0.0);
      if (dropout < 0) problem.spec.mask = Mask::stride(3, Align::bottom_right);  // by residue class
      attention(problem.spec, problem.operands());
      const std::vector<float> out = problem.out.values();
      const std::vector<float> lse = problem.lse.values();
      problem.out.fill(-1);
      problem.lse.fill(-1);
      observe_all(problem);
      EXPECT_EQ(problem.out.values(), out) << sizes.to_string();
      EXPECT_EQ(problem.lse.values(), lse) << sizes.to_string();
    }
  }
}

// More keys than a strip keeps at once: maxima rise from block to block and weights are made again.
TEST(Observe, OfManyKeysEqualsStatisticsOfTheMaterialisedWeights) {
  for (const double dropout : {0.0, 0.5}) {
    Problem problem({.Hq = 2, .Lq = 14, .Lk = 9000, .Dk = 4, .Dv = 1}, 8, kernel::DType::f32,
                    testing::Layout::contiguous, 2);
    problem.spec.dropout = dropout;
    problem.spec.mask = Mask::causal(Align::bottom_right);
    const Observe what{
        .entropy = true, .distance = true, .column_sums = true, .top_k = 9, .rows = {0, 7, 13}};
    const Observation seen = observe(what, problem.spec, problem.operands());
    const Reference plain = reference(problem.spec, problem.operands());
    const testing::Bound bound = testing::float32_bound(testing::largest_finite(plain.logits));
    EXPECT_TRUE(is_close(seen.entropy, plain.entropy, bound, 1.0));
    EXPECT_TRUE(is_close(seen.column_sums, plain.column_sums, bound));
    std::vector<double> distance(2 * 14);
    std::vector<double> head_distance(2);
    std::vector<double> rows;
    for (int64_t row = 0; row < 2 * 14; ++row) {
      for (int64_t j = 0; j < 9000; ++j) {
        distance[row] += plain.weights[row * 9000 + j] * std::abs(static_cast<double>(row % 14 + 8986 - j));
      }
      head_distance[row / 14] += distance[row] / 14;
    }
    for (const int64_t row : {0, 7, 13, 14, 21, 27}) {
      rows.insert(rows.end(), plain.weights.begin() + row * 9000, plain.weights.begin() + (row + 1) * 9000);
    }
    EXPECT_TRUE(is_close(seen.distance, distance, bound));
    EXPECT_TRUE(is_close(seen.head_distance, head_distance, bound));
    EXPECT_TRUE(is_close(seen.row_weights, rows, bound));
    for (int64_t row = 0; row < 2 * 14; ++row) {
      std::vector<double> sorted(plain.weights.begin() + row * 9000,
                                 plain.weights.begin() + (row + 1) * 9000);
      std::sort(sorted.rbegin(), sorted.rend());
      for (int64_t n = 0; n < 9; ++n) EXPECT_NEAR(seen.top_weights[row * 9 + n], sorted[n], bound.max);
    }
  }
}

class ObserveOnTarget : public testing::EachTarget {};

// Logits with ties, in orders that are hard on whoever bounds the best beforehand: all equal, rising,
// falling, the large ones of one lane, hardly two alike.
TEST_P(ObserveOnTarget, BestKeysAreThoseOfASortWhateverTheOrderOfTheLogits) {
  std::mt19937_64 random(3);
  const std::vector<std::function<int64_t(int64_t)>> orders = {
      [](int64_t) { return 5; },
      [](int64_t j) { return j; },
      [](int64_t j) { return -j; },
      [](int64_t j) { return j % 16 == 3 ? 1000 + j % 7 : j % 5; },
      [&](int64_t) { return static_cast<int64_t>(random() % 9); },
      [&](int64_t) { return static_cast<int64_t>(random() % 100'000); }};
  for (const int64_t keys : {1, 15, 16, 17, 100, 700, 5000})
    for (const int64_t k : {1, 2, 8, 9, 16, 17, 40})
      for (size_t order = 0; order < orders.size(); ++order) {
        if (k > keys) continue;
        SCOPED_TRACE(std::to_string(keys) + " keys, " + std::to_string(k) + ", order " +
                     std::to_string(order));
        Problem problem({.Lq = 13, .Lk = keys, .Dk = 1, .Dv = 1}, 2);
        problem.spec.mask = Mask::causal(Align::bottom_right);
        problem.spec.scale = 1;
        problem.q.fill(1);
        std::vector<float> logits;
        for (int64_t j = 0; j < keys; ++j) {
          logits.push_back(static_cast<float>(orders[order](j)) / 4096);
          problem.k.set(0, 0, j, 0, logits.back());
        }
        const Operands operands = problem.operands();
        const Observation seen = observe({.top_k = k, .rows = {0, 12}}, problem.spec, operands);
        for (const int64_t row : {0, 12}) {
          const int64_t visible = std::max<int64_t>(keys - 12 + row, 0);
          std::vector<int64_t> best(static_cast<size_t>(visible));
          std::iota(best.begin(), best.end(), 0);
          std::stable_sort(best.begin(), best.end(),
                           [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
          best.resize(static_cast<size_t>(k), -1);
          for (int64_t n = 0; n < k; ++n) {
            ASSERT_EQ(seen.top_keys[row * k + n], best[n]) << n << " of row " << row;
            const float weight = best[n] < 0 ? 0.0F : seen.row_weights[row / 12 * keys + best[n]];
            ASSERT_NEAR(seen.top_weights[row * k + n], weight, 1e-6 * weight) << n << " of row " << row;
          }
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Targets, ObserveOnTarget, ::testing::ValuesIn(kernel::runnable_targets()));

TEST(Observe, TheNaNOfARowStaysOutOfTheKeysThatItDoesNotSee) {
  Problem problem({.Lq = 30, .Lk = 30, .Dk = 4, .Dv = 2}, 9);
  problem.spec.mask = Mask::causal(Align::top_left);
  problem.q.set(0, 0, 10, 0, std::numeric_limits<float>::quiet_NaN());
  const Observation seen = observe(kAll, problem.spec, problem.operands());
  for (int64_t j = 0; j < 30; ++j) EXPECT_EQ(std::isnan(seen.column_sums[j]), j <= 10) << j;
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(std::isnan(seen.entropy[i]), i == 10) << i;
}

}  // namespace
}  // namespace regard::attention
