// Everything that a call can carry, as operators of libtorch: against the same attention composed of
// libtorch's own operators in float64, forward and backward.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "regard/autograd/attention.h"
#include "regard/autograd/custom.h"

namespace regard::autograd {
namespace {

using attention::Align;
using attention::Mask;
using attention::Spec;
using Inputs = std::vector<at::Tensor>;

struct Both {
  at::Tensor out, lse;
};

double error(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  const double scale = std::max(1e-3, want.abs().max().item<double>());
  return (got.to(at::kDouble) - want).abs().max().item<double>() / scale;
}

// softmax(score(q k^T / sqrt(Dk)) where visible) v. No row may be empty.
Both compose(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& visible,
             const std::function<at::Tensor(at::Tensor)>& score = nullptr) {
  const int64_t group = q.size(1) / k.size(1);
  at::Tensor logits = at::matmul(q, k.repeat_interleave(group, 1).transpose(2, 3)) /
                      std::sqrt(static_cast<double>(q.size(3)));
  if (score) logits = score(logits);
  if (visible.defined()) logits = logits.masked_fill(visible.logical_not(), -INFINITY);
  const at::Tensor lse = logits.logsumexp(3);
  return {at::matmul(at::exp(logits - lse.unsqueeze(3)), v.repeat_interleave(group, 1)), lse};
}

// Compares results and the gradients of all inputs of a loss that uses out and lse.
void expect_equal(const Inputs& inputs, const std::function<Both(const Inputs&)>& ours,
                  const std::function<Both(const Inputs&)>& composed) {
  Inputs single;
  Inputs doubled;
  for (const at::Tensor& x : inputs) {
    single.push_back(x.detach().clone().requires_grad_());
    doubled.push_back(x.detach().to(at::kDouble).requires_grad_());
  }
  const Both got = ours(single);
  const Both want = composed(doubled);
  EXPECT_LE(error(got.out, want.out), 4e-6);
  EXPECT_LE(error(got.lse, want.lse), 4e-6);
  const at::Tensor by_out = at::randn(got.out.sizes());
  const at::Tensor by_lse = at::randn(got.lse.sizes());
  const auto loss = [&](const Both& x, at::ScalarType type) {
    return (x.out * by_out.to(type)).sum() + (x.lse * by_lse.to(type)).sum();
  };
  const Inputs got_gradients = torch::autograd::grad({loss(got, at::kFloat)}, single);
  const Inputs want_gradients = torch::autograd::grad({loss(want, at::kDouble)}, doubled);
  for (size_t i = 0; i < inputs.size(); ++i)
    EXPECT_LE(error(got_gradients[i], want_gradients[i]), 1e-5) << "input " << i;
}

Inputs random_inputs(int64_t batch, int64_t rows, int64_t keys) {
  at::manual_seed(7);
  return {at::randn({batch, 4, rows, 16}), at::randn({batch, 2, keys, 16}), at::randn({batch, 2, keys, 12})};
}

// A mask and its data against the same mask as a table.
void expect_mask(const Mask& mask, const AttentionExtras& extras, const at::Tensor& visible,
                 const Inputs& inputs) {
  Spec spec;
  spec.mask = mask;
  expect_equal(
      inputs,
      [&](const Inputs& x) {
        Both result;
        result.out = attention(spec, x[0], x[1], x[2], extras, &result.lse);
        return result;
      },
      [&](const Inputs& x) { return compose(x[0], x[1], x[2], visible); });
}

at::Tensor causal(int64_t length) {
  return at::ones({length, length}, at::kBool).tril();
}

TEST(Operators, SegmentsEqualTheirTable) {
  at::Tensor segments = at::arange(70).div(9, "floor").to(at::kInt);
  AttentionExtras extras;
  extras.query_segments = extras.key_segments = segments;
  const at::Tensor visible = segments.unsqueeze(1).eq(segments.unsqueeze(0)).logical_and(causal(70));
  expect_mask(Mask::segments() & Mask::causal(Align::top_left), extras, visible, random_inputs(2, 70, 70));

  // Their own for each entry of the batch, every second element of a larger tensor.
  const at::Tensor each =
      at::stack({at::arange(70).remainder(3), at::arange(70).div(35, "floor")}).to(at::kInt);
  const at::Tensor spaced = at::stack({each, each + 100}, 2).select(2, 0);
  EXPECT_FALSE(spaced.is_contiguous());
  extras.query_segments = extras.key_segments = spaced;
  expect_mask(Mask::segments(), extras, each.unsqueeze(2).eq(each.unsqueeze(1)).unsqueeze(1),
              random_inputs(2, 70, 70));
}

TEST(Operators, ABlockListEqualsItsTable) {
  const Inputs inputs = random_inputs(2, 50, 90);
  at::Tensor blocks = at::rand({2, 4, 4, 3}) < 0.5;  // blocks of 16 rows and 32 keys
  blocks.select(3, 0).fill_(true);
  AttentionExtras extras;
  extras.block_mask = blocks;
  const at::Tensor visible =
      blocks.repeat_interleave(16, 2).repeat_interleave(32, 3).narrow(2, 0, 50).narrow(3, 0, 90);
  expect_mask(Mask::blocks(16, 32), extras, visible, inputs);
}

TEST(Operators, ANeighbourhoodAndAStrideEqualTheirTables) {
  const at::Tensor y = at::arange(63).div(9, "floor");
  const at::Tensor x = at::arange(63).remainder(9);
  const auto near = [](const at::Tensor& place, int64_t size) {
    const at::Tensor first = (place - 1).clamp(0, size - 3);
    const at::Tensor from = place.unsqueeze(0) - first.unsqueeze(1);
    return (from >= 0).logical_and(from < 3);
  };
  expect_mask(Mask::neighbourhood({.height = 7, .width = 9, .kernel_y = 3, .kernel_x = 3}), {},
              near(y, 7).logical_and(near(x, 9)), random_inputs(1, 63, 63));
  const at::Tensor distance = at::arange(63).unsqueeze(1) - at::arange(63).unsqueeze(0);
  expect_mask(Mask::stride(3, Align::top_left) & Mask::causal(Align::top_left), {},
              distance.remainder(3).eq(0).logical_and(causal(63)), random_inputs(1, 63, 63));
}

TEST(Operators, SlopesAndSinksHaveTheirGradients) {
  Inputs inputs = random_inputs(2, 33, 41);
  inputs.push_back(at::rand({4}));
  inputs.push_back(at::randn({2, 4}));
  expect_equal(
      inputs,
      [](const Inputs& x) {
        AttentionExtras extras;
        extras.slopes = x[3];
        extras.sinks = x[4];
        Both result;
        result.out = attention({}, x[0], x[1], x[2], extras, &result.lse);
        return result;
      },
      [](const Inputs& x) {
        const at::Tensor distance = (at::arange(33).unsqueeze(1) + 8 - at::arange(41).unsqueeze(0)).abs();
        at::Tensor logits = at::matmul(x[0], x[1].repeat_interleave(2, 1).transpose(2, 3)) / 4.0 -
                            x[3].view({1, 4, 1, 1}) * distance;
        const at::Tensor sink = x[4].view({2, 4, 1, 1}).expand({2, 4, 33, 1});
        const at::Tensor lse = at::cat({logits, sink}, 3).logsumexp(3);
        return Both{at::matmul(at::exp(logits - lse.unsqueeze(3)), x[2].repeat_interleave(2, 1)), lse};
      });
}

TEST(Operators, DropoutDropsTheSameWeightsForwardAndBackward) {
  Spec spec;
  spec.dropout = 0.25;
  AttentionExtras extras;
  extras.dropout_seed = 5;
  extras.dropout_offset = 9;
  extras.dropout_first_batch = 3;
  const Inputs inputs = random_inputs(2, 20, 24);
  // With values of one per key the output is the weights: which are 0 shows what was dropped.
  const at::Tensor kept =
      attention(spec, inputs[0], inputs[1], at::eye(24).expand({2, 2, 24, 24}), extras).ne(0);
  EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 0.75, 0.05);
  expect_equal(
      inputs,
      [&](const Inputs& x) {
        Both result;
        result.out = attention(spec, x[0], x[1], x[2], extras, &result.lse);
        return result;
      },
      [&](const Inputs& x) {
        const at::Tensor logits = at::matmul(x[0], x[1].repeat_interleave(2, 1).transpose(2, 3)) / 4.0;
        const at::Tensor weights = at::softmax(logits, 3) * kept / 0.75;
        return Both{at::matmul(weights, x[2].repeat_interleave(2, 1)), logits.logsumexp(3)};
      });
}

TEST(Operators, PackedDocumentsEqualABlockDiagonalTable) {
  const at::Tensor starts = at::tensor(std::vector<int64_t>{0, 17, 18, 18, 70});
  const at::Tensor document = at::arange(70).unsqueeze(1).ge(starts.narrow(0, 1, 4).unsqueeze(0)).sum(1);
  const at::Tensor visible = document.unsqueeze(1).eq(document.unsqueeze(0)).logical_and(causal(70));
  Spec spec;
  spec.mask = Mask::causal(Align::top_left);
  Inputs inputs = random_inputs(1, 70, 70);
  inputs.push_back(at::randn({4}));
  expect_equal(
      inputs,
      [&](const Inputs& x) {
        AttentionExtras extras;
        extras.sinks = x[3];
        Both result;
        result.out = varlen_attention(spec, x[0], x[1], x[2], starts, starts, extras, &result.lse);
        return result;
      },
      [&](const Inputs& x) {
        const Both plain = compose(x[0], x[1], x[2], visible);
        const at::Tensor lse = at::logaddexp(plain.lse, x[3].view({1, 4, 1}));
        return Both{plain.out * at::exp(plain.lse - lse).unsqueeze(3), lse};
      });
}

TEST(Operators, ScoresAndMasksOfYourOwnHaveGradients) {
  at::manual_seed(8);
  const at::Tensor table = at::randn({41 + 33});
  const float* learned = table.const_data_ptr<float>();
  Inputs inputs = random_inputs(2, 33, 41);
  inputs.push_back(at::randn({33, 41}));  // a bias, which learns
  expect_equal(
      inputs,
      [&](const Inputs& x) {
        AttentionExtras extras;
        extras.bias = x[3];
        Both result;
        result.out = custom_attention(
            {}, x[0], x[1], x[2],
            [learned](auto s, int64_t, int64_t h, int64_t i, int64_t j) {
              using std::tanh;
              return tanh(s) * 2.0F + s * s * (0.1F * static_cast<float>(h)) + learned[i - j + 40];
            },
            [](int64_t b, int64_t, int64_t i, int64_t j) { return (i + j + b) % 3 != 0; }, extras,
            &result.lse);
        return result;
      },
      [&](const Inputs& x) {
        const at::Tensor i = at::arange(33).unsqueeze(1);
        const at::Tensor j = at::arange(41).unsqueeze(0);
        const at::Tensor sum = at::stack({i + j, i + j + 1}).unsqueeze(1);
        const at::Tensor head = at::arange(4).view({4, 1, 1}).to(at::kDouble) * 0.1;
        return compose(x[0], x[1], x[2], sum.remainder(3).ne(0), [&](const at::Tensor& s) {
          return at::tanh(s) * 2.0 + s * s * head + table.to(at::kDouble).index({i - j + 40}) + x[3];
        });
      });
}

TEST(Operators, NoneHasASecondDerivative) {
  Inputs inputs = random_inputs(1, 6, 6);
  for (at::Tensor& x : inputs) x.requires_grad_();
  const at::Tensor starts = at::tensor(std::vector<int64_t>{0, 2, 6});
  const auto identity = [](auto s, int64_t, int64_t, int64_t, int64_t) { return s; };
  for (const at::Tensor& out :
       {attention({}, inputs[0], inputs[1], inputs[2]),
        varlen_attention({}, inputs[0], inputs[1], inputs[2], starts, starts),
        custom_attention({}, inputs[0], inputs[1], inputs[2], identity, attention::kNoMask)}) {
    EXPECT_THROW(torch::autograd::grad({out.sum()}, {inputs[0]}, {}, std::nullopt, /*create_graph=*/true),
                 std::invalid_argument);
  }
}

TEST(Operators, MistakesAreNamed) {
  const Inputs x = random_inputs(1, 6, 6);
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  Spec segments, blocks;
  segments.mask = Mask::segments();
  blocks.mask = Mask::blocks(2, 2);
  AttentionExtras extras;
  extras.query_segments = extras.key_segments = at::arange(6);  // int64
  EXPECT_NE(message([&] { attention(segments, x[0], x[1], x[2], extras); }).find("query_segments is Long"),
            std::string::npos);
  EXPECT_NE(message([&] { attention(segments, x[0], x[1], x[2]); }).find("query_segments is missing"),
            std::string::npos);
  extras = {};
  extras.block_mask = at::ones({2, 3}, at::kBool);
  EXPECT_NE(message([&] { attention(blocks, x[0], x[1], x[2], extras); }).find("block_mask has sizes"),
            std::string::npos);
  extras.block_mask = at::ones({3, 3});
  EXPECT_NE(message([&] { attention(blocks, x[0], x[1], x[2], extras); }).find("block_mask is Float"),
            std::string::npos);
  const at::Tensor starts = at::tensor(std::vector<int64_t>{0, 5});
  EXPECT_NE(
      message([&] { varlen_attention({}, x[0], x[1], x[2], starts, starts); }).find("query_starts[1] is 5"),
      std::string::npos);
  EXPECT_NE(message([&] {
              varlen_attention({}, x[0], x[1], x[2], starts.to(at::kInt), starts);
            }).find("query_starts is Int"),
            std::string::npos);
}

}  // namespace
}  // namespace regard::autograd
