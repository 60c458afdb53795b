#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "regard/attention/attention.h"
#include "regard/attention/reference.h"
#include "tests/attention/problem.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

// The lines of docs/semantics.md, each with small inputs whose right answer is known.
namespace regard::attention {
namespace {

using kernel::DType;
using testing::is_close;
using testing::Problem;
using testing::Sizes;
using testing::Tensor;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class Contract : public testing::EachTarget {
 protected:
  static std::vector<float> run(Problem& problem, kernel::Parallel& parallel = kernel::default_parallel()) {
    attention(problem.spec, problem.operands(), parallel);
    return problem.out.values();
  }
  static void expect_reference(Problem& problem) {
    const std::vector<float> out = run(problem);
    const Reference plain = reference(problem.spec, problem.operands());
    const testing::Bound bound = testing::float32_bound(testing::largest_finite(plain.logits));
    EXPECT_TRUE(is_close(out, plain.out, bound)) << problem.sizes.to_string();
    EXPECT_TRUE(is_close(problem.lse.values(), plain.lse, bound, 1.0)) << problem.sizes.to_string();
  }
};

void set_row(Tensor& tensor, int64_t position, float value) {
  for (int64_t h = 0; h < tensor.size()[1]; ++h) {
    for (int64_t f = 0; f < tensor.size()[3]; ++f) tensor.set(0, h, position, f, value);
  }
}

// 1. Order: the cap comes before bias and mask, so a masked key does not come back through it.
TEST_P(Contract, SoftcapComesBeforeBiasAndMask) {
  Problem problem({.Lk = 2, .Dk = 4, .Dv = 3}, 1);
  problem.q.fill(0);
  set_row(problem.v, 1, 1000);
  problem.spec.softcap = 1;
  problem.add_bias({1, 1, 1, 2});
  problem.bias.set(0, 0, 0, 0, 0);
  problem.bias.set(0, 0, 0, 1, -kInf);
  const std::vector<float> out = run(problem);
  for (int64_t d = 0; d < 3; ++d) EXPECT_EQ(out[d], problem.v.get(0, 0, 0, d));
}

// 1. Padding of a tile takes no part: 65 logits that the cap makes equal.
TEST_P(Contract, TilePaddingTakesNoPartAfterTheSoftcap) {
  Problem problem({.Lk = 65, .Dk = 4, .Dv = 1}, 1);
  problem.q.fill(10);
  problem.k.fill(-10);
  problem.v.fill(0);
  problem.v.set(0, 0, 64, 0, 1);
  problem.spec.softcap = 1;
  EXPECT_NEAR(run(problem)[0], 1.0 / 65, 1e-8);
}

// 2. Nothing of a masked pair leaks.
TEST_P(Contract, ANaNBehindACausalMaskReachesOnlyTheRowsThatSeeIt) {
  for (const int64_t length : {4, 12, 13, 40}) {
    for (const bool in_values : {false, true}) {
      Problem problem({.Lq = length, .Lk = length, .Dk = 8, .Dv = 8}, 2);
      problem.spec.mask = Mask::causal(Align::top_left);
      const std::vector<float> clean = run(problem);
      set_row(in_values ? problem.v : problem.k, length - 1, kNaN);
      const std::vector<float> poisoned = run(problem);
      const int64_t last = (length - 1) * 8;
      // The tile that holds it is summed in another order: equal within the bound, not by bits.
      const std::vector<double> expected(clean.begin(), clean.begin() + last);
      ASSERT_TRUE(is_close(std::vector<float>(poisoned.begin(), poisoned.begin() + last), expected,
                           testing::float32_bound(6)));
      for (int64_t at = last; at < last + 8; ++at) ASSERT_TRUE(std::isnan(poisoned[at])) << length;
      EXPECT_EQ(std::isnan(problem.lse.get(0, 0, length - 1, 0)), !in_values);
    }
  }
}

TEST_P(Contract, NonFiniteKeysAndValuesBehindAnyMaskHaveNoInfluence) {
  for (const float poison : {kNaN, kInf, -kInf}) {
    for (const int kind : {0, 1, 2}) {
      Problem problem({.B = 1, .Hq = 2, .Hkv = 1, .Lq = 14, .Lk = 37, .Dk = 9, .Dv = 11}, 3);
      const int64_t hidden = kind == 1 ? 36 : 20;
      if (kind == 0) {
        problem.add_dense_mask({1, 1, 1, 37}, 1.0);
        problem.mask[hidden] = 0;
      } else if (kind == 1) {
        problem.lengths = {36};
        problem.spec.mask = Mask::key_lengths();
      } else {
        problem.spec.mask = Mask::window(-1, 5, Align::top_left);  // rows see up to 18
      }
      const std::vector<float> clean = run(problem);
      set_row(problem.k, hidden, poison);
      set_row(problem.v, hidden, poison);
      EXPECT_TRUE(
          is_close(run(problem), std::vector<double>(clean.begin(), clean.end()), testing::float32_bound(6)))
          << "mask " << kind << ", " << poison;
      const Operands operands = problem.operands();
      for (const float p : weights(problem.spec, operands, operands.lse, 0, 1, 0, 14, 0, 37)) {
        ASSERT_TRUE(p >= 0 && p <= 1) << p;
      }
    }
  }
}

TEST_P(Contract, ANaNQueryIsNaNAndItsNeighboursAreNot) {
  Problem problem({.Lq = 13, .Lk = 20, .Dk = 8, .Dv = 8}, 4);
  const std::vector<float> clean = run(problem);
  set_row(problem.q, 5, kNaN);
  const std::vector<float> out = run(problem);
  for (int64_t at = 0; at < 13 * 8; ++at) {
    if (at / 8 == 5) {
      EXPECT_TRUE(std::isnan(out[at]));
    } else {
      EXPECT_NEAR(out[at], clean[at], 1e-6);
    }
  }
}

// 3. Rows that see nothing.
TEST_P(Contract, ARowThatSeesNothingIsZeroWithLseMinusInfinity) {
  Problem problem({.Lq = 4, .Lk = 5, .Dk = 3, .Dv = 6}, 5);
  problem.add_dense_mask({1, 1, 4, 5}, 1.0);
  std::fill(problem.mask.begin() + 10, problem.mask.begin() + 15, 0);
  const std::vector<float> out = run(problem);
  for (int64_t d = 0; d < 6; ++d) EXPECT_EQ(out[12 + d], 0.0F);
  EXPECT_EQ(problem.lse.get(0, 0, 2, 0), -kInf);
  EXPECT_NE(out[0], 0.0F);
  const Operands operands = problem.operands();
  for (const float p : weights(problem.spec, operands, operands.lse, 0, 0, 2, 1, 0, 5)) EXPECT_EQ(p, 0.0F);
}

TEST_P(Contract, AnEmptyRowWithASinkIsZeroAndItsLseIsTheSink) {
  Problem problem({.Lq = 2, .Lk = 3, .Dk = 3, .Dv = 2}, 6);
  problem.add_dense_mask({1, 1, 1, 1}, 0.0);
  problem.add_sinks();
  for (const float x : run(problem)) EXPECT_EQ(x, 0.0F);
  EXPECT_FLOAT_EQ(problem.lse.get(0, 0, 1, 0), problem.sinks.get(0, 0, 0, 0));
}

TEST_P(Contract, ASinkTakesItsShareAndIsPartOfLse) {
  Problem problem({.Lk = 1, .Dk = 3, .Dv = 2}, 7);
  problem.q.fill(0);
  problem.add_sinks();
  problem.sinks.fill(0);
  const std::vector<float> out = run(problem);
  for (int64_t d = 0; d < 2; ++d) EXPECT_FLOAT_EQ(out[d], problem.v.get(0, 0, 0, d) / 2);
  EXPECT_FLOAT_EQ(problem.lse.get(0, 0, 0, 0), std::log(2.0F));
}

// A finite "minus infinity" is a number like any other: an empty row becomes the mean of all values.
TEST_P(Contract, MinusOneBillionAsMaskMakesAnEmptyRowTheMeanOfAllKeys) {
  Problem problem({.Lk = 4, .Dk = 3, .Dv = 1}, 8);
  problem.q.fill(0);
  problem.add_bias({1, 1, 1, 4});
  problem.bias.fill(-1e9F);
  float mean = 0;
  for (int64_t j = 0; j < 4; ++j) mean += problem.v.get(0, 0, j, 0) / 4;
  EXPECT_NEAR(run(problem)[0], mean, 1e-6);
  problem.bias.fill(-kInf);
  EXPECT_EQ(run(problem)[0], 0.0F);
  EXPECT_EQ(problem.lse.get(0, 0, 0, 0), -kInf);
}

// The conventions of docs/semantics.md, "Who means what by a mask": one causal mask over keys of which the
// last two are padding, said in each way.
TEST_P(Contract, OneMaskSaidInEveryConventionGivesOneResult) {
  const int64_t rows = 9;
  const int64_t keys = 9;
  Problem problem({.Hq = 2, .Hkv = 2, .Lq = rows, .Lk = keys, .Dk = 8, .Dv = 8}, 24);
  problem.spec.mask = Mask::causal(Align::top_left) & Mask::key_lengths();
  problem.lengths = {7};
  const std::vector<float> out = run(problem);
  const std::vector<double> expected(out.begin(), out.end());
  const testing::Bound bound = testing::float32_bound(6);

  std::vector<uint8_t> keep(rows * keys);  // true = keep: ours, scaled_dot_product_attention, ONNX, mask != 0
  std::vector<uint8_t> block(rows * keys);  // true = block: "True -> -inf", MultiheadAttention
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      keep[i * keys + j] = j <= i && j < 7;
      block[i * keys + j] = !keep[i * keys + j];
    }
  }
  problem.lengths.clear();
  problem.spec.mask = Mask::dense();
  problem.mask_size = {1, 1, rows, keys};
  problem.mask = keep;
  EXPECT_TRUE(is_close(run(problem), expected, bound)) << "true = keep";
  for (size_t at = 0; at < block.size(); ++at) problem.mask[at] = !block[at];
  EXPECT_TRUE(is_close(run(problem), expected, bound)) << "true = block, negated";
  problem.mask = block;
  EXPECT_FALSE(is_close(run(problem), expected, bound)) << "true = block, not negated: another mask";

  problem.mask.clear();
  problem.spec.mask = {};
  problem.add_bias({1, 1, rows, keys});
  for (const float blocked : {-kInf, std::numeric_limits<float>::lowest(), -1e9F}) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < keys; ++j) problem.bias.set(0, 0, i, j, keep[i * keys + j] ? 0.0F : blocked);
    }
    EXPECT_TRUE(is_close(run(problem), expected, bound)) << "added, " << blocked;
  }
}

TEST_P(Contract, LeadingTilesWithoutAVisibleKeyLeaveNoTrace) {
  Problem problem({.Lq = 640, .Lk = 640, .Dk = 4, .Dv = 2}, 9);
  problem.q.fill(1);
  problem.k.fill(1);
  problem.v.fill(1);
  problem.spec.mask = Mask::window(10, 10, Align::top_left);
  for (const float x : run(problem)) ASSERT_NEAR(x, 1.0F, 1e-6);
}

// 4. Alignment is the caller's word.
TEST_P(Contract, CausalAlignmentIsWhatTheCallerSaid) {
  Problem problem({.Lq = 2, .Lk = 5, .Dk = 4, .Dv = 2}, 10);
  problem.spec.mask = Mask::causal(Align::top_left);
  const std::vector<float> top = run(problem);
  EXPECT_FLOAT_EQ(top[0], problem.v.get(0, 0, 0, 0));  // row 0 sees key 0 alone
  expect_reference(problem);
  problem.spec.mask = Mask::causal(Align::bottom_right);
  EXPECT_NE(run(problem), top);
  expect_reference(problem);
  Problem tall({.Lq = 5, .Lk = 2, .Dk = 4, .Dv = 2}, 10);
  tall.spec.mask = Mask::causal(Align::bottom_right);
  const std::vector<float> out = run(tall);
  for (int64_t at = 0; at < 6; ++at) EXPECT_EQ(out[at], 0.0F);
  expect_reference(tall);
}

// 5. Sizes.
TEST_P(Contract, AnyHeadSize) {
  for (const int64_t size : {1, 3, 40, 72, 80, 96, 112, 256, 320, 512, 576}) {
    Problem problem({.Hq = 1, .Lq = 14, .Lk = 35, .Dk = size, .Dv = size}, 11);
    expect_reference(problem);
  }
  for (const auto& [dk, dv] : {std::pair{192, 128}, {576, 512}, {1, 128}, {128, 1}}) {
    Problem problem({.Hq = 1, .Lq = 13, .Lk = 33, .Dk = dk, .Dv = dv}, 12);
    expect_reference(problem);
  }
}

TEST_P(Contract, SizesAroundTheTiles) {
  for (const int64_t Lq : {1, 2, 3, 5, 11, 12, 13, 17, 23, 24, 25, 47}) {
    for (const int64_t Lk : {1, 2, 13, 15, 16, 17, 31, 32, 33, 61, 64, 67}) {
      Problem problem({.Lq = Lq, .Lk = Lk, .Dk = 16, .Dv = 9}, 100 * Lq + Lk);
      expect_reference(problem);
    }
  }
}

TEST_P(Contract, KeysBeyondOneBlock) {
  Problem problem({.Hq = 2, .Hkv = 1, .Lq = 13, .Lk = 9001, .Dk = 8, .Dv = 8}, 13);
  expect_reference(problem);
  problem.spec.mask = Mask::window(5000, 0, Align::bottom_right);
  problem.add_sinks();
  expect_reference(problem);
}

TEST_P(Contract, EmptySizes) {
  Problem no_features({.Lq = 3, .Lk = 4, .Dk = 0, .Dv = 2}, 14);
  expect_reference(no_features);  // the mean of the values
  Problem no_keys({.Lq = 3, .Lk = 0, .Dk = 5, .Dv = 2}, 14);
  expect_reference(no_keys);
  Problem no_queries({.Lq = 0, .Lk = 4, .Dk = 5, .Dv = 2}, 14);
  EXPECT_NO_THROW(run(no_queries));
  Problem no_values({.Lq = 3, .Lk = 4, .Dk = 5, .Dv = 0}, 14);
  expect_reference(no_values);  // LSE alone
  Problem no_batch({.B = 0, .Lq = 3, .Lk = 4, .Dk = 5, .Dv = 2}, 14);
  EXPECT_NO_THROW(run(no_batch));
}

TEST_P(Contract, SeventyThousandKeysAreSummedStably) {
  const int64_t keys = 70001;
  Problem problem({.Lk = keys, .Dk = 1, .Dv = 1}, 15);
  problem.q.fill(0);
  for (int64_t j = 0; j < keys; ++j) problem.v.set(0, 0, j, 0, static_cast<float>(j));
  EXPECT_NEAR(run(problem)[0], 35000, 35000 * 1e-6);
}

// 6. GQA, and repeated inputs through zero strides.
TEST_P(Contract, GroupsOfQueryHeadsShareAKeyHead) {
  for (const auto& [Hq, Hkv] : {std::pair{65, 5}, {16, 4}, {27, 1}, {5, 1}}) {
    Problem problem({.Hq = Hq, .Hkv = Hkv, .Lq = 3, .Lk = 18, .Dk = 6, .Dv = 4}, 16);
    problem.add_dense_mask({1, 1, 3, 18}, 0.7);
    expect_reference(problem);
    Problem decode({.Hq = Hq, .Hkv = Hkv, .Lq = 1, .Lk = 45, .Dk = 6, .Dv = 4}, 16);
    expect_reference(decode);
  }
}

TEST_P(Contract, KeysRepeatedByZeroStridesEqualTheirCopies) {
  Problem problem({.B = 2, .Hq = 3, .Hkv = 3, .Lq = 5, .Lk = 33, .Dk = 8, .Dv = 8}, 17);
  for (Tensor* tensor : {&problem.k, &problem.v}) {
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t h = 0; h < 3; ++h) {
        for (int64_t p = 0; p < 33; ++p) {
          for (int64_t f = 0; f < 8; ++f) tensor->set(b, h, p, f, tensor->get(0, 0, p, f));
        }
      }
    }
  }
  const std::vector<float> copied = run(problem);
  Operands operands = problem.operands();
  operands.k.stride[0] = operands.k.stride[1] = 0;
  operands.v.stride[0] = operands.v.stride[1] = 0;
  attention(problem.spec, operands);
  EXPECT_EQ(problem.out.values(), copied);
}

TEST_P(Contract, OnlyTheElementsOfOutAreWritten) {
  Problem problem({.B = 2, .Hq = 2, .Hkv = 2, .Lq = 13, .Lk = 17, .Dk = 5, .Dv = 7}, 18, DType::f32,
                  testing::Layout::spaced);
  run(problem);
  const kernel::AnyView out = problem.out.view();
  const float* data = static_cast<const float*>(out.data);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t i = 0; i < 13; ++i) {
      for (int64_t d = 0; d < 7; ++d) {
        const int64_t at = h * out.stride[1] + i * out.stride[2] + d * out.stride[3];
        EXPECT_FALSE(std::isnan(data[at]));
        EXPECT_TRUE(std::isnan(data[at + 1])) << "a gap was written";
      }
    }
  }
}

// 8. Bits.
TEST_P(Contract, BitsDoNotDependOnTheNumberOfThreadsOrTheRun) {
  for (const Sizes& sizes : {Sizes{.B = 2, .Hq = 6, .Hkv = 2, .Lq = 70, .Lk = 190, .Dk = 20, .Dv = 24},
                             Sizes{.B = 1, .Hq = 8, .Hkv = 2, .Lq = 1, .Lk = 3000, .Dk = 32, .Dv = 32}}) {
    Problem problem(sizes, 19);
    problem.spec.mask = Mask::causal(Align::bottom_right);
    problem.add_sinks();
    kernel::Serial serial;
    const std::vector<float> one = run(problem, serial);
    const std::vector<float> lse = problem.lse.values();
    for (const int threads : {1, 2, 3, 5}) {
      kernel::ThreadPool pool(threads);
      for (int repeat = 0; repeat < 10; ++repeat) {
        ASSERT_EQ(run(problem, pool), one) << threads << " threads";
        ASSERT_EQ(problem.lse.values(), lse) << threads << " threads";
      }
    }
  }
}

TEST_P(Contract, APrefillRowDoesNotDependOnBatchLengthOrOtherRows) {
  Problem problem({.B = 3, .Hq = 2, .Hkv = 1, .Lq = 64, .Lk = 100, .Dk = 24, .Dv = 16}, 20);
  const std::vector<float> all = run(problem);
  // Rows 7 to 45 of batch entry 2 alone.
  const int64_t rows = 39;
  Operands operands = problem.operands();
  const auto cut = [](auto view, int64_t width) {
    view.data = static_cast<decltype(view.data)>(
        static_cast<std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>,
                                       const std::byte*, std::byte*>>(view.data) +
        2 * view.stride[0] * width);
    view.size[0] = 1;
    return view;
  };
  operands.q = cut(operands.q, 4);
  operands.q.data = static_cast<const float*>(operands.q.data) + 7 * operands.q.stride[2];
  operands.q.size[2] = rows;
  operands.k = cut(operands.k, 4);
  operands.v = cut(operands.v, 4);
  Tensor out(DType::f32, {1, 2, rows, 16});
  operands.out = out.view();
  operands.lse = {};
  attention(problem.spec, operands);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t d = 0; d < 16; ++d) {
        ASSERT_EQ(out.get(0, h, i, d), all[((4 + h) * 64 + 7 + i) * 16 + d]) << h << ", " << i;
      }
    }
  }
}

TEST_P(Contract, DecodeEqualsPrefillWithinTheErrorBound) {
  Problem problem({.Hq = 8, .Hkv = 2, .Lq = 40, .Lk = 400, .Dk = 32, .Dv = 32}, 21);
  problem.spec.mask = Mask::causal(Align::bottom_right);
  const std::vector<float> all = run(problem);
  Operands last = problem.operands();
  last.q.data = static_cast<const float*>(last.q.data) + 39 * last.q.stride[2];
  last.q.size[2] = 1;
  Tensor out(DType::f32, {1, 8, 1, 32});
  last.out = out.view();
  last.lse = {};
  attention(problem.spec, last);
  std::vector<double> expected;
  for (int64_t h = 0; h < 8; ++h) {
    for (int64_t d = 0; d < 32; ++d) expected.push_back(all[(h * 40 + 39) * 32 + d]);
  }
  EXPECT_TRUE(is_close(out.values(), expected, testing::float32_bound(6)));
}

// 10. In a bool mask every byte but 0 means: may attend.
TEST_P(Contract, DecodeEqualsPrefillBitForBitWhenRowsMustBeInvariant) {
  Problem whole({.B = 1, .Hq = 4, .Hkv = 2, .Lq = 90, .Lk = 90, .Dk = 24, .Dv = 40}, 31);
  whole.spec.mask = Mask::causal(Align::bottom_right);
  attention(whole.spec, whole.operands());
  for (const int64_t length : {1, 2, 15, 16, 17, 64, 65, 90}) {
    Operands call = whole.operands();
    call.q.data = static_cast<const float*>(call.q.data) + (length - 1) * call.q.stride[2];
    call.q.size[2] = 1;
    call.k.size[2] = call.v.size[2] = length;
    Tensor out(DType::f32, {1, 4, 1, 40});
    call.out = out.view();
    call.lse = {};
    Spec spec = whole.spec;
    spec.row_invariant = true;
    attention(spec, call);
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t d = 0; d < 40; ++d) {
        ASSERT_EQ(out.get(0, h, 0, d), whole.out.get(0, h, length - 1, d)) << "length " << length;
      }
    }
  }
}

TEST_P(Contract, InADenseMaskTrueMeansMayAttend) {
  Problem problem({.Lk = 3, .Dk = 2, .Dv = 1}, 22);
  problem.add_dense_mask({1, 1, 1, 3}, 0.0);
  problem.mask = {0, 128, 0};
  EXPECT_FLOAT_EQ(run(problem)[0], problem.v.get(0, 0, 1, 0));
}

// 7. and large numbers: a one-hot row is exact, a bias common to all keys changes nothing but LSE.
TEST_P(Contract, HugeFiniteLogitsAreExactlyOneHot) {
  Problem problem({.Lk = 20, .Dk = 1, .Dv = 3}, 23);
  problem.q.fill(60);
  for (int64_t j = 0; j < 20; ++j) problem.k.set(0, 0, j, 0, j == 11 ? 120.0F : -120.0F);
  const std::vector<float> out = run(problem);
  for (int64_t d = 0; d < 3; ++d) EXPECT_EQ(out[d], problem.v.get(0, 0, 11, d));
}

INSTANTIATE_TEST_SUITE_P(Targets, Contract, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::attention
