#include "regard/train/token_stream.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <stdexcept>

namespace regard::train {
namespace {

TokenText counting(int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return {tokens, {}};
}

TEST(TokenStream, EachPassShowsEachPieceOnceInAnotherOrder) {
  TokenStream stream(counting(107), 5, 4, 3);
  EXPECT_EQ(stream.batches_per_pass(), 5);  // 20 pieces
  std::vector<std::vector<int64_t>> passes;
  for (int64_t pass = 0; pass < 3; ++pass) {
    std::set<int64_t> seen;
    std::vector<int64_t> order;
    for (int64_t step = 0; step < 5; ++step) {
      const TokenBatch batch = stream.at(pass * 5 + step);
      EXPECT_EQ(batch.ids.sizes(), (at::IntArrayRef{4, 5}));
      EXPECT_TRUE(batch.next.equal(batch.ids + 1));  // what follows each token
      for (int64_t row = 0; row < 4; ++row) {
        order.push_back(batch.ids[row][0].item<int64_t>());
        for (int64_t i = 0; i < 5; ++i) EXPECT_TRUE(seen.insert(batch.ids[row][i].item<int64_t>()).second);
      }
    }
    EXPECT_EQ(seen.size(), 100u);
    passes.push_back(order);
  }
  EXPECT_NE(passes[0], passes[1]);
  EXPECT_NE(passes[1], passes[2]);
}

TEST(TokenStream, AStepDependsOnNothingBeforeIt) {
  TokenStream walked(counting(300), 7, 3, 9);
  TokenStream jumped(counting(300), 7, 3, 9);
  TokenStream other(counting(300), 7, 3, 10);
  at::Tensor last;
  for (int64_t step = 0; step <= 40; ++step) last = walked.at(step).ids;
  EXPECT_TRUE(jumped.at(40).ids.equal(last));
  EXPECT_FALSE(other.at(40).ids.equal(last));
  EXPECT_TRUE(walked.at(2).ids.equal(jumped.at(2).ids));  // and back
}

TEST(TokenStream, TheLargestOffsetStillHasATokenToPredict) {
  // 5 + 2 * 5 tokens: two pieces at every offset 0..4.
  for (uint64_t seed = 0; seed < 50; ++seed) {
    TokenStream stream(counting(15), 5, 2, seed);
    EXPECT_LE(stream.at(0).next.max().item<int64_t>(), 14);
  }
  EXPECT_THROW(TokenStream(counting(14), 5, 2, 0), std::invalid_argument);
}

TEST(TokenStream, ValidationReadsTheTextInOrderWithoutTheRest) {
  const std::vector<TokenBatch> batches = pieces_in_order(counting(23), 5, 3, 0);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_TRUE(at::cat({batches[0].ids.flatten(), batches[1].ids.flatten()}).equal(at::arange(20)));
  EXPECT_TRUE(batches[1].next.equal(batches[1].ids + 1));
  EXPECT_EQ(pieces_in_order(counting(23), 5, 3, 2).front().ids.size(0), 2);
}

TEST(TokenStream, PackedDocumentsBeginAgainAndEndWithoutASuccessor) {
  TokenText text = counting(12);
  text.documents = {0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 3, 3};
  const std::vector<TokenBatch> batches = pieces_in_order(text, 5, 2, 0);
  ASSERT_EQ(batches.size(), 1u);
  const auto rows = [](const at::Tensor& tensor) {
    const at::Tensor wide = tensor.to(at::kLong).contiguous();
    return std::vector<int64_t>(wide.const_data_ptr<int64_t>(),
                                wide.const_data_ptr<int64_t>() + wide.numel());
  };
  EXPECT_EQ(rows(batches[0].segments), (std::vector<int64_t>{0, 0, 0, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(rows(batches[0].positions), (std::vector<int64_t>{0, 1, 2, 0, 1, 0, 1, 2, 3, 4}));
  const int64_t none = kNothing;
  EXPECT_EQ(rows(batches[0].next), (std::vector<int64_t>{1, 2, none, 4, none, 6, 7, 8, 9, none}));
  EXPECT_FALSE(pieces_in_order(counting(12), 5, 2, 0)[0].segments.defined());
}

}  // namespace
}  // namespace regard::train
