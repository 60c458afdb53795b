#include "regard/train/parallel_text.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "regard/io/error.h"
#include "regard/text/load.h"
#include "regard/text/train_vocabulary.h"
#include "tests/io/files.h"

namespace regard::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParallelText, ALineIsASourceAndItsReferences) {
  const auto pairs = parse_parallel_text("Hi.\tSalut.\tBonjour.\nRun!\tCours !\r\n", "a.tsv", false);
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].source, "Hi.");
  EXPECT_THAT(pairs[0].references, ElementsAre("Salut.", "Bonjour."));
  EXPECT_EQ(pairs[1].source, "Run!");
  EXPECT_THAT(pairs[1].references, ElementsAre("Cours !"));
}

TEST(ParallelText, SwappedEachReferenceIsASource) {
  const auto pairs = parse_parallel_text("It's 7:45.\tA\tB\nIt is 7:45.\tB\nNo.\tC", "a.tsv", true);
  ASSERT_EQ(pairs.size(), 3u);
  EXPECT_EQ(pairs[0].source, "A");
  EXPECT_THAT(pairs[0].references, ElementsAre("It's 7:45."));
  EXPECT_EQ(pairs[1].source, "B");
  EXPECT_THAT(pairs[1].references, ElementsAre("It's 7:45.", "It is 7:45."));
  EXPECT_EQ(pairs[2].source, "C");
}

TEST(ParallelText, DamageIsNamedByItsLine) {
  io::TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) -> std::string {
    io::write_all(folder / "a.tsv", text);
    try {
      read_parallel_text(folder / "a.tsv", false);
    } catch (const io::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("a\tb\nc\n"), HasSubstr("a.tsv, line 2: there is no tab"));
  EXPECT_THAT(refusal("a\tb\n\nc\td\n"), HasSubstr("line 2: column 1 is empty"));
  EXPECT_THAT(refusal("a\t \n"), HasSubstr("line 1: column 2 is empty"));
  EXPECT_THAT(refusal("a\tb\t\n"), HasSubstr("line 1: column 3 is empty"));
  EXPECT_THAT(refusal("\tb\n"), HasSubstr("line 1: column 1 is empty"));
  EXPECT_THAT(refusal("a\tb\nc\td\xC3\n"), HasSubstr("line 2: not valid UTF-8 at byte 3"));
  EXPECT_THROW(read_parallel_text(folder / "none.tsv", false), io::Error);
}

TEST(ParallelText, TargetsAreFramedAndTextsSpellNoSpecialToken) {
  const std::vector<std::string> sentences = {"</s> ab", "abc"};
  const auto tokenizer = text::tokenizer_from_json(
      text::train_vocabulary(sentences, {.kind = text::VocabularyOptions::Kind::bpe, .size = 260}), "x");
  const auto pairs = token_pairs(*tokenizer, {{"ab", {"abc", "b"}}, {"</s>", {"a"}}});
  ASSERT_EQ(pairs.size(), 3u);
  const auto id = [](char c) { return int32_t(4 + c); };
  EXPECT_THAT(pairs[0].source, ElementsAre(id('a'), id('b'), text::kEosId));
  EXPECT_THAT(pairs[0].target, ElementsAre(text::kBosId, id('a'), id('b'), id('c'), text::kEosId));
  EXPECT_EQ(pairs[1].source, pairs[0].source);
  EXPECT_THAT(pairs[1].target, ElementsAre(text::kBosId, id('b'), text::kEosId));
  EXPECT_EQ(pairs[2].source.size(), 5u);
}

// Pairs whose ids tell which they are.
std::vector<TokenPair> made(int64_t count, int64_t longest) {
  std::mt19937_64 generator(7);
  std::vector<TokenPair> out;
  for (int64_t i = 0; i < count; ++i) {
    TokenPair pair;
    pair.source.assign(1 + generator() % uint64_t(longest), int32_t(100 + i));
    pair.target.assign(2 + generator() % uint64_t(longest - 1), int32_t(100 + i));
    out.push_back(pair);
  }
  return out;
}

TEST(PairBatches, EachPassHasEveryPairOnce) {
  PairBatches batches(made(501, 17), {.tokens = 100, .max_length = 20}, 3);
  for (int64_t pass = 0; pass < 3; ++pass) {
    std::set<int64_t> seen;
    size_t count = 0;
    for (int64_t i = 0; i < batches.per_pass(); ++i) {
      for (const int64_t number : batches.numbers(pass * batches.per_pass() + i)) {
        seen.insert(number);
        ++count;
      }
    }
    EXPECT_EQ(count, 501u);
    EXPECT_EQ(seen.size(), 501u);
    EXPECT_EQ(*seen.rbegin(), 500);
  }
}

TEST(PairBatches, KeepToTheirBoundAndToldTokens) {
  for (const int64_t bound : {40, 41, 100, 1000, 100000}) {
    PairBatches batches(made(300, 17), {.tokens = bound, .max_length = 20}, 3);
    for (int64_t step = 0; step < batches.per_pass(); ++step) {
      const PairBatch batch = batches.at(step);
      EXPECT_LE(batch.source.numel() + batch.target.numel(), bound);
      EXPECT_EQ(batch.learned.numel(), batches.tokens(step));
    }
    if (bound == 100000) {
      EXPECT_EQ(batches.per_pass(), 1);
    }
  }
}

TEST(PairBatches, ABatchHoldsItsPairsAndPaddingAlone) {
  const auto pairs = made(120, 9);
  PairBatches batches(pairs, {.tokens = 90, .max_length = 12, .pad = 5}, 1);
  bool padded = false;
  for (int64_t step = 0; step < batches.per_pass(); ++step) {
    const PairBatch batch = batches.at(step);
    const auto numbers = batches.numbers(step);
    ASSERT_EQ(int64_t(numbers.size()), batch.source.size(0));
    std::vector<int64_t> learned;
    for (int64_t row = 0; row < batch.source.size(0); ++row) {
      const TokenPair& pair = pairs[size_t(numbers[size_t(row)])];
      for (int64_t i = 0; i < batch.source.size(1); ++i) {
        const bool inside = i < int64_t(pair.source.size());
        EXPECT_EQ(batch.source[row][i].item<int64_t>(), inside ? pair.source[size_t(i)] : 5);
        padded = padded || !inside;
      }
      for (int64_t i = 0; i < batch.target.size(1); ++i) {
        const bool inside = i + 1 < int64_t(pair.target.size());
        EXPECT_EQ(batch.target[row][i].item<int64_t>(), inside ? pair.target[size_t(i)] : 5);
        EXPECT_EQ(batch.next[row][i].item<int64_t>(), inside ? pair.target[size_t(i) + 1] : 5);
        if (inside) learned.push_back(row * batch.target.size(1) + i);
      }
      const int64_t length =
          batch.source_lengths.defined() ? batch.source_lengths[row].item<int64_t>() : batch.source.size(1);
      EXPECT_EQ(length, int64_t(pair.source.size()));
    }
    EXPECT_TRUE(at::equal(batch.learned, at::tensor(learned, at::kLong)));
  }
  EXPECT_TRUE(padded);
}

TEST(PairBatches, AreAFunctionOfSeedAndStepAlone) {
  const auto pairs = made(200, 9);
  const BatchOptions options{.tokens = 60, .max_length = 12};
  PairBatches whole(pairs, options, 4);
  std::vector<std::vector<int64_t>> in_order;
  const int64_t steps = 2 * whole.per_pass();
  for (int64_t step = 0; step < steps; ++step) in_order.push_back(whole.numbers(step));
  for (const int64_t step : {steps - 1, int64_t{0}, whole.per_pass(), int64_t{3}}) {
    PairBatches fresh(pairs, options, 4);
    EXPECT_EQ(fresh.numbers(step), in_order[size_t(step)]);
    EXPECT_EQ(whole.numbers(step), in_order[size_t(step)]);
  }
  PairBatches other(pairs, options, 5);
  size_t same = 0;
  for (int64_t step = 0; step < steps; ++step) same += other.numbers(step) == in_order[size_t(step)] ? 1 : 0;
  EXPECT_LT(same, size_t(steps) / 4);
  // The second pass is another order, with other neighbours.
  EXPECT_NE(std::vector(in_order.begin(), in_order.begin() + whole.per_pass()),
            std::vector(in_order.begin() + whole.per_pass(), in_order.end()));
}

TEST(PairBatches, WhatIsTooLongIsLeftOutAndCounted) {
  std::vector<TokenPair> pairs = made(10, 4);
  pairs[2].source.assign(9, 1);
  pairs[5].target.assign(9, 1);
  PairBatches batches(pairs, {.tokens = 20, .max_length = 8}, 1);
  EXPECT_EQ(batches.left_out(), 2);
  EXPECT_EQ(batches.pairs(), 8);
  EXPECT_THROW(PairBatches(pairs, {.tokens = 15, .max_length = 8}, 1), std::invalid_argument);
  EXPECT_THROW(PairBatches({pairs[2]}, {.tokens = 20, .max_length = 8}, 1), std::invalid_argument);
}

}  // namespace
}  // namespace regard::train
