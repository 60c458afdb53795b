// Strides by residue class: the same results as the definition, at the cost of the pairs that are visible.
#include <gtest/gtest.h>

#include <cmath>

#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "regard/attention/patterns.h"
#include "regard/attention/reference.h"
#include "tests/attention/owned_gradients.h"
#include "tests/attention/problem.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

namespace regard::attention {
namespace {

using kernel::DType;
using testing::is_close;
using testing::OwnedGradients;
using testing::Problem;
using testing::Tensor;
using testing::to_doubles;

class Residue : public testing::EachTarget {};

TEST_P(Residue, ClassesEqualTheDefinitionForwardAndBackward) {
  uint64_t seed = 0;
  for (const int64_t rows : {1, 2, 40, 131}) {
    for (const int64_t keys : {25, 131, 300}) {
      for (const Align align : {Align::top_left, Align::bottom_right}) {
        const Align other = align == Align::top_left ? Align::bottom_right : Align::top_left;
        const Mask masks[] = {Mask::stride(3, align), Mask::stride(2, align) & Mask::causal(align),
                              atrous(3, 20, align), Mask::stride(3, align) & Mask::causal(other),
                              Mask::stride(7, align) & Mask::prefix(50) & Mask::first_rows(30)};
        for (const Mask& mask : masks) {
          Problem problem({.B = 1, .Hq = 4, .Hkv = 2, .Lq = rows, .Lk = keys, .Dk = 24, .Dv = 17}, ++seed);
          problem.spec.mask = mask;
          if (seed % 3 == 0) problem.add_bias({1, 4, seed % 2 == 0 ? 1 : rows, seed % 4 < 2 ? 1 : keys});
          if (seed % 5 == 0) problem.add_sinks();
          SCOPED_TRACE(problem.sizes.to_string() + ", " + problem.spec.to_string());
          const Operands call = problem.operands();
          const Reference plain = reference(problem.spec, call);
          const testing::Bound bound = testing::float32_bound(testing::largest_finite(plain.logits));
          attention(problem.spec, call);
          ASSERT_TRUE(is_close(problem.out.values(), plain.out, bound));
          ASSERT_TRUE(is_close(problem.lse.values(), plain.lse, bound, 1.0));
          Tensor grad_out(DType::f32, problem.out.size());
          grad_out.fill_normal(problem.random);
          OwnedGradients grads(call);
          Gradients wanted = grads.views();
          if (seed % 2 == 0) wanted.bias = wanted.sinks = {};  // with them all runs as one call
          for (Tensor* x : {&grads.q, &grads.k, &grads.v}) x->fill(7);
          backward(problem.spec, call, {grad_out.view(), {}}, wanted);
          const ReferenceGradients want = reference_backward(problem.spec, call, to_doubles(grad_out));
          ASSERT_TRUE(is_close(grads.q.values(), want.q, bound, 4.0));
          ASSERT_TRUE(is_close(grads.k.values(), want.k, bound, 4.0));
          ASSERT_TRUE(is_close(grads.v.values(), want.v, bound, 4.0));
        }
      }
    }
  }
}

TEST_P(Residue, BitsDoNotDependOnTheNumberOfThreadsOrOtherRows) {
  Problem problem({.B = 1, .Hq = 2, .Hkv = 1, .Lq = 200, .Lk = 200, .Dk = 16, .Dv = 16}, 3);
  problem.spec.mask = Mask::stride(3, Align::bottom_right) & Mask::causal(Align::bottom_right);
  const Operands call = problem.operands();
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 5}) {
    kernel::ThreadPool pool(threads);
    attention(problem.spec, call, pool);
    if (first.empty()) first = problem.out.values();
    EXPECT_EQ(problem.out.values(), first) << threads;
  }
  Operands last = call;  // the last 100 rows alone stand at the same positions
  const auto behind = [](auto view) {
    view.data = static_cast<float*>(const_cast<void*>(view.data)) + 100 * view.stride[2];
    view.size[2] = 100;
    return view;
  };
  Tensor out(DType::f32, {1, 2, 100, 16});
  last.q = behind(call.q);
  last.out = out.view();
  last.lse = {};
  attention(problem.spec, last);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t i = 0; i < 100; ++i) {
      for (int64_t f = 0; f < 16; ++f) ASSERT_EQ(out.get(0, h, i, f), problem.out.get(0, h, 100 + i, f));
    }
  }
}

TEST(ResiduePlan, CostsTheTilesOfTheClassesAlone) {
  Problem problem({.B = 1, .Hq = 1, .Hkv = 1, .Lq = 1536, .Lk = 1536, .Dk = 8, .Dv = 8}, 1);
  const auto tiles = [&](const Mask& mask) {
    problem.spec.mask = mask;
    return static_cast<double>(Plan(problem.spec, problem.operands()).live_tiles().live);
  };
  const double causal = tiles(Mask::causal(Align::top_left));
  EXPECT_NEAR(tiles(Mask::causal(Align::top_left) & Mask::stride(3, Align::top_left)), causal / 3,
              causal / 20);
  EXPECT_NEAR(tiles(atrous(4, -1, Align::top_left)), 2 * causal / 4, causal / 20);
  // What counts positions is not cut: distances and draws would be others.
  problem.add_slopes();
  EXPECT_GE(tiles(Mask::causal(Align::top_left) & Mask::stride(3, Align::top_left)), 0.9 * causal);
}

INSTANTIATE_TEST_SUITE_P(Targets, Residue, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::attention
