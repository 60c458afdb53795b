#include "regard/attention/varlen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "regard/attention/attention.h"
#include "regard/attention/reference.h"
#include "tests/attention/owned_gradients.h"
#include "tests/attention/problem.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

// Packed documents: each is a problem of its own.
namespace regard::attention {
namespace {

using kernel::DType;
using ::testing::HasSubstr;
using testing::OwnedGradients;
using testing::Problem;
using testing::Tensor;

using Starts = std::vector<int64_t>;

std::vector<std::vector<float>> values_of(const OwnedGradients& grads) {
  return {grads.q.values(), grads.k.values(), grads.v.values()};
}

struct Packed {
  Problem problem;
  Starts query_starts, key_starts;
  Tensor grad_out, grad_lse;

  Packed(const Starts& query_starts, const Starts& key_starts, uint64_t seed, DType type = DType::f32,
         testing::Layout layout = testing::Layout::contiguous)
      : problem({.B = 1,
                 .Hq = 4,
                 .Hkv = 2,
                 .Lq = query_starts.back(),
                 .Lk = key_starts.back(),
                 .Dk = 24,
                 .Dv = 17},
                seed, type, layout),
        query_starts(query_starts),
        key_starts(key_starts),
        grad_out(DType::f32, problem.out.size()),
        grad_lse(DType::f32, problem.lse.size()) {
    grad_out.fill_normal(problem.random);
    grad_lse.fill_normal(problem.random);
  }
  Documents documents() const { return {query_starts, key_starts}; }
  int64_t count() const { return static_cast<int64_t>(query_starts.size()) - 1; }
};

Tensor rows_of(const Tensor& all, int64_t begin, int64_t end, DType type = DType::f32) {
  const kernel::Extents size{1, all.size()[1], end - begin, all.size()[3]};
  Tensor some(type, size);
  for (int64_t h = 0; h < size[1]; ++h) {
    for (int64_t p = 0; p < size[2]; ++p) {
      for (int64_t f = 0; f < size[3]; ++f) some.set(0, h, p, f, all.get(0, h, begin + p, f));
    }
  }
  return some;
}

// Document d, copied out of the pack into a problem of its own.
Problem document(const Packed& pack, int64_t d, DType type) {
  const Problem& all = pack.problem;
  const int64_t q0 = pack.query_starts[d], q1 = pack.query_starts[d + 1];
  const int64_t k0 = pack.key_starts[d], k1 = pack.key_starts[d + 1];
  testing::Sizes sizes = all.sizes;
  sizes.Lq = q1 - q0;
  sizes.Lk = k1 - k0;
  Problem one(sizes, 1, type);
  one.spec = all.spec;
  one.q = rows_of(all.q, q0, q1, type);
  one.k = rows_of(all.k, k0, k1, type);
  one.v = rows_of(all.v, k0, k1, type);
  one.slopes = all.slopes;
  one.sinks = all.sinks;
  one.dropout_seed = all.dropout_seed;
  one.dropout_first_batch = d;
  return one;
}

class Varlen : public testing::EachTarget {
 protected:
  // Forward and backward of the pack equal those of separate calls, bit for bit.
  static void expect_equals_separate_calls(Packed& pack, DType type, kernel::Parallel& parallel) {
    Problem& problem = pack.problem;
    const Operands call = problem.operands();
    varlen_attention(problem.spec, call, pack.documents(), parallel);
    OwnedGradients grads(problem.operands());
    varlen_backward(problem.spec, call, pack.documents(), {pack.grad_out.view(), pack.grad_lse.as<float>()},
                    grads.views(), parallel);
    std::vector<double> slopes(problem.sizes.Hq), sinks(problem.sizes.Hq);
    for (int64_t d = 0; d < pack.count(); ++d) {
      SCOPED_TRACE("document " + std::to_string(d));
      const int64_t q0 = pack.query_starts[d], q1 = pack.query_starts[d + 1];
      const int64_t k0 = pack.key_starts[d], k1 = pack.key_starts[d + 1];
      Problem one = document(pack, d, type);
      const Operands own = one.operands();
      attention(one.spec, own);
      ASSERT_EQ(rows_of(problem.out, q0, q1).values(), one.out.values());
      ASSERT_EQ(rows_of(problem.lse, q0, q1).values(), one.lse.values());
      Tensor grad_out = rows_of(pack.grad_out, q0, q1);
      Tensor grad_lse = rows_of(pack.grad_lse, q0, q1);
      OwnedGradients own_grads(one.operands());
      backward(one.spec, own, {grad_out.view(), grad_lse.as<float>()}, own_grads.views());
      ASSERT_EQ(rows_of(grads.q, q0, q1).values(), own_grads.q.values());
      ASSERT_EQ(rows_of(grads.k, k0, k1).values(), own_grads.k.values());
      ASSERT_EQ(rows_of(grads.v, k0, k1).values(), own_grads.v.values());
      for (int64_t h = 0; h < problem.sizes.Hq; ++h) {
        if (problem.slopes.size()[1] > 0) slopes[h] += own_grads.slopes.get(0, h, 0, 0);
        if (problem.sinks.size()[1] > 0) sinks[h] += own_grads.sinks.get(0, h, 0, 0);
      }
    }
    for (int64_t h = 0; h < problem.sizes.Hq; ++h) {
      if (problem.slopes.size()[1] > 0) {
        EXPECT_EQ(grads.slopes.get(0, h, 0, 0), static_cast<float>(slopes[h]));
      }
      if (problem.sinks.size()[1] > 0) {
        EXPECT_EQ(grads.sinks.get(0, h, 0, 0), static_cast<float>(sinks[h]));
      }
    }
  }
};

TEST_P(Varlen, FourAndSixPackedEqualTwoSeparateCalls) {
  Packed pack({0, 4, 10}, {0, 4, 10}, 1);
  expect_equals_separate_calls(pack, DType::f32, kernel::default_parallel());
}

TEST_P(Varlen, WithEveryOptionEqualsSeparateCalls) {
  Packed pack({0, 40, 41, 41, 171, 200}, {0, 70, 77, 77, 207, 210}, 2);
  Problem& problem = pack.problem;
  problem.spec.mask = Mask::causal(Align::bottom_right) | Mask::prefix(3) |
                      (Mask::stride(5, Align::top_left) & Mask::first_rows(20));
  problem.spec.dropout = 0.2;
  problem.spec.softcap = 3;
  problem.dropout_seed = 11;
  problem.add_slopes();
  problem.add_sinks();
  expect_equals_separate_calls(pack, DType::f32, kernel::default_parallel());
}

TEST_P(Varlen, InSixteenBitsAndAnyLayoutEqualsSeparateCalls) {
  for (const testing::Layout layout :
       {testing::Layout::position_major, testing::Layout::spaced, testing::Layout::reversed}) {
    Packed pack({0, 33, 63}, {0, 50, 90}, 3, DType::bf16, layout);
    pack.problem.spec.mask = Mask::causal(Align::bottom_right);
    expect_equals_separate_calls(pack, DType::bf16, kernel::default_parallel());
  }
}

TEST_P(Varlen, DocumentsMayBeEmptyOnEitherSide) {
  Packed pack({0, 150, 150, 300}, {0, 100, 200, 300}, 4);
  expect_equals_separate_calls(pack, DType::f32, kernel::default_parallel());
  Problem& problem = pack.problem;
  OwnedGradients grads(problem.operands());
  varlen_backward(problem.spec, problem.operands(), pack.documents(), {pack.grad_out.view(), {}},
                  grads.views());
  for (const auto& values : values_of(grads)) {
    for (const float value : values) ASSERT_TRUE(std::isfinite(value));
  }
  for (int64_t j = 100; j < 200; ++j) {  // nobody looks at these
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t f = 0; f < 24; ++f) ASSERT_EQ(grads.k.get(0, h, j, f), 0.0F);
      for (int64_t f = 0; f < 17; ++f) ASSERT_EQ(grads.v.get(0, h, j, f), 0.0F);
    }
  }
  Packed lonely({0, 7, 12}, {0, 0, 9}, 5);  // queries without keys
  expect_equals_separate_calls(lonely, DType::f32, kernel::default_parallel());
  EXPECT_EQ(lonely.problem.out.get(0, 0, 3, 0), 0.0F);
  EXPECT_EQ(lonely.problem.lse.get(0, 0, 3, 0), -INFINITY);
}

TEST_P(Varlen, GradientsEqualThoseOfTheReferenceDocumentByDocument) {
  Packed pack({0, 128, 192, 448}, {0, 128, 192, 448}, 6);
  Problem& problem = pack.problem;
  problem.spec.mask = Mask::causal(Align::top_left);
  const Operands call = problem.operands();
  varlen_attention(problem.spec, call, pack.documents());
  OwnedGradients grads(problem.operands());
  varlen_backward(problem.spec, call, pack.documents(), {pack.grad_out.view(), {}}, grads.views());
  for (int64_t d = 0; d < 3; ++d) {
    Problem one = document(pack, d, DType::f32);
    const int64_t begin = pack.query_starts[d], end = pack.query_starts[d + 1];
    const std::vector<float> arriving = rows_of(pack.grad_out, begin, end).values();
    const ReferenceGradients plain =
        reference_backward(one.spec, one.operands(), {arriving.begin(), arriving.end()});
    const testing::Bound bound =
        testing::float32_bound(testing::largest_finite(reference(one.spec, one.operands()).logits));
    EXPECT_TRUE(testing::is_close(rows_of(grads.q, begin, end).values(), plain.q, bound, 1.0));
    EXPECT_TRUE(testing::is_close(rows_of(grads.k, begin, end).values(), plain.k, bound, 1.0));
    EXPECT_TRUE(testing::is_close(rows_of(grads.v, begin, end).values(), plain.v, bound, 1.0));
  }
}

TEST_P(Varlen, EqualsTheSameDocumentsAsSegments) {
  Packed pack({0, 31, 95, 100}, {0, 31, 95, 100}, 7);
  Problem& problem = pack.problem;
  problem.spec.mask = Mask::causal(Align::top_left);
  varlen_attention(problem.spec, problem.operands(), pack.documents());
  const std::vector<float> packed = problem.out.values();
  for (int64_t d = 0; d < 3; ++d) {
    for (int64_t i = pack.query_starts[d]; i < pack.query_starts[d + 1]; ++i) {
      problem.query_segments.push_back(static_cast<int32_t>(d));
    }
  }
  problem.key_segments = problem.query_segments;
  problem.spec.mask = problem.spec.mask & Mask::segments();
  attention(problem.spec, problem.operands());
  EXPECT_TRUE(testing::is_close(problem.out.values(), {packed.begin(), packed.end()}, {1e-6, 4e-6}));
}

TEST_P(Varlen, BitsDoNotDependOnTheNumberOfThreads) {
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3, 5}) {
    kernel::ThreadPool pool(threads);
    Packed pack({0, 300, 310, 330, 345, 350}, {0, 300, 310, 330, 345, 350}, 8);  // one long, some short
    Problem& problem = pack.problem;
    problem.spec.dropout = 0.1;
    problem.add_slopes();
    varlen_attention(problem.spec, problem.operands(), pack.documents(), pool);
    OwnedGradients grads(problem.operands());
    varlen_backward(problem.spec, problem.operands(), pack.documents(),
                    {pack.grad_out.view(), pack.grad_lse.as<float>()}, grads.views(), pool);
    std::vector<std::vector<float>> all = values_of(grads);
    all.push_back(problem.out.values());
    all.push_back(problem.lse.values());
    all.push_back(grads.slopes.values());
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << threads << " threads";
    // From inside a task of the same pool.
    std::vector<float> nested;
    pool.run(1, [&](int64_t, int) {
      varlen_attention(problem.spec, problem.operands(), pack.documents(), pool);
      nested = problem.out.values();
    });
    EXPECT_EQ(nested, all[3]);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Varlen, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

TEST(VarlenCheck, NamesWhatIsWrongWithTheDocuments) {
  Packed pack({0, 4, 10}, {0, 4, 10}, 1);
  Problem& problem = pack.problem;
  const auto message = [&](const Starts& query_starts, const Starts& key_starts) -> std::string {
    try {
      varlen_attention(problem.spec, problem.operands(), {query_starts, key_starts});
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message({}, {0, 10}), HasSubstr("query_starts is empty"));
  EXPECT_THAT(message({1, 10}, {0, 10}), HasSubstr("query_starts[0] is 1; allowed: 0"));
  EXPECT_THAT(message({0, 6, 4, 10}, {0, 1, 2, 10}), HasSubstr("query_starts[2] is 4; allowed: at least"));
  EXPECT_THAT(message({0, 4}, {0, 10}),
              HasSubstr("query_starts[1] is 4; allowed: the number of rows of q, 10"));
  EXPECT_THAT(message({0, 10}, {0, 5, 10}), HasSubstr("equally many"));
  problem.spec.mask = Mask::dense();
  EXPECT_THAT(message({0, 10}, {0, 10}), HasSubstr("the mask is dense; allowed: parts that need no data"));
  problem.spec.mask = Mask::neighbourhood({2, 2, 1, 1});
  EXPECT_THAT(message({0, 4, 10}, {0, 4, 10}), HasSubstr("4 of both"));
  problem.spec.mask = {};
  problem.add_bias({1, 1, 10, 10});
  EXPECT_THAT(message({0, 10}, {0, 10}), HasSubstr("bias is given"));
}

}  // namespace
}  // namespace regard::attention
