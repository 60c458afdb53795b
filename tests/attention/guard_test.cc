// Kernels read and write nothing outside of their views: everything that a call may touch ends at a page that
// nobody may touch, first on one side, then on the other. A mistake ends the test program by a signal.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "regard/attention/cache.h"
#include "regard/attention/observe.h"
#include "regard/attention/plan.h"
#include "regard/kernel/rows.h"
#include "tests/attention/owned_gradients.h"
#include "tests/attention/random_call.h"
#include "tests/attention/target_test.h"
#include "tests/support/guarded.h"

namespace regard::attention {
namespace {

using kernel::CacheType;
using kernel::DType;
using testing::GuardedCopies;
using testing::OwnedGradients;
using testing::Problem;
using testing::Tensor;

constexpr GuardedCopies::Edge kEdges[] = {GuardedCopies::Edge::begin, GuardedCopies::Edge::end};

Operands guard(const Operands& call, GuardedCopies& copies) {
  Operands guarded = call;
  guarded.q = copies.copy(call.q);
  guarded.k = copies.copy(call.k);
  guarded.v = copies.copy(call.v);
  guarded.out = copies.copy(call.out);
  guarded.lse = copies.copy(call.lse);
  guarded.bias = copies.copy(call.bias);
  guarded.slopes = copies.copy(call.slopes);
  guarded.sinks = copies.copy(call.sinks);
  guarded.dense_mask = copies.copy(call.dense_mask);
  guarded.key_lengths = copies.copy(call.key_lengths);
  guarded.query_segments = copies.copy(call.query_segments);
  guarded.key_segments = copies.copy(call.key_segments);
  guarded.block_mask = copies.copy(call.block_mask);
  return guarded;
}

Gradients guard(const Gradients& all, GuardedCopies& copies) {
  return {copies.copy(all.q),    copies.copy(all.k),      copies.copy(all.v),
          copies.copy(all.bias), copies.copy(all.slopes), copies.copy(all.sinks)};
}

// Scratch of just the bytes that are asked for. Its beginning is aligned by 64, so only the last up to 63
// bytes before the end stay unwatched.
std::span<std::byte> guard_scratch(size_t size, GuardedCopies& copies) {
  const std::vector<std::byte> zeros((size + 63) / 64 * 64);
  return {copies.copy(zeros.data(), zeros.size()), size};
}

// Elements in the order of their indices.
std::vector<float> values_of(const kernel::ConstAnyView& view) {
  std::vector<float> values;
  for (int64_t b = 0; b < view.size[0]; ++b)
    for (int64_t h = 0; h < view.size[1]; ++h)
      for (int64_t i = 0; i < view.size[2]; ++i)
        for (int64_t f = 0; f < view.size[3]; ++f) values.push_back(kernel::element(view, b, h, i, f));
  return values;
}

class Guard : public testing::EachTarget {};

TEST_P(Guard, ForwardBackwardObservationAndWeightsStayInsideTheirViews) {
  for (const uint64_t seed : testing::property_seeds(150)) {
    Problem problem = testing::random_call(seed + 5000);
    SCOPED_TRACE(testing::describe(seed, problem));
    const Operands call = problem.operands();
    Tensor grad_out(DType::f32, problem.out.size(), static_cast<testing::Layout>(seed % 4));
    grad_out.fill_normal(problem.random);
    attention(problem.spec, call);
    OwnedGradients grads(call);
    backward(problem.spec, call, {grad_out.view(), {}}, grads.views());
    const Observe what{.entropy = true,
                       .row_max = true,
                       .column_sums = true,
                       .top_k = std::min<int64_t>(3, call.k.size[2]),
                       .block_rows = 5,
                       .block_keys = 9};
    const Observation seen = observe(what, problem.spec, call);
    const std::vector<float> out = problem.out.values();
    problem.out.fill(0);
    OwnedGradients none(call);
    for (const GuardedCopies::Edge edge : kEdges) {
      GuardedCopies copies(edge);
      const Operands guarded = guard(call, copies);
      const Plan plan(problem.spec, guarded);
      kernel::Serial serial;
      plan.run(guarded, guard_scratch(plan.workspace_bytes(1), copies), serial);
      ASSERT_EQ(values_of(guarded.out), out);
      const Gradients to = guard(none.views(), copies);
      const Arriving from{copies.copy(kernel::ConstAnyView(grad_out.view())), {}};
      const BackwardPlan backward_plan(problem.spec, guarded, from, to);
      backward_plan.run(guarded, from, to, guard_scratch(backward_plan.workspace_bytes(1), copies), serial);
      ASSERT_EQ(values_of(to.q), grads.q.values());
      ASSERT_EQ(values_of(to.k), grads.k.values());
      ASSERT_EQ(values_of(to.v), grads.v.values());
      ASSERT_EQ(observe(what, problem.spec, guarded).column_sums, seen.column_sums);
      Operands inputs = guarded;
      inputs.v = {};
      weights(problem.spec, inputs, guarded.lse, 0, 0, 0, call.q.size[2], 0, call.k.size[2]);
    }
  }
}

// A pool of pages, its table and its scales; what no entry holds is NaN where its type has one.
TEST_P(Guard, KeysInPagesAreReadWhereTheyAreHeldAlone) {
  for (const CacheType type : {CacheType::f32, CacheType::bf16, CacheType::f16, CacheType::i8}) {
    for (const int64_t rows : {1, 3, 20}) {
      for (const int64_t features : {1, 7, 24, 65}) {
        SCOPED_TRACE(std::string(kernel::name(type)) + ", rows " + std::to_string(rows) + ", features " +
                     std::to_string(features));
        KvCache::Shape shape{.kv_heads = 2,
                             .key_size = features,
                             .value_size = features + 2,
                             .pages = 5,
                             .page_size = 16,
                             .type = type};
        KvCache cache(shape);
        std::vector<int64_t> sequences{cache.create(), cache.create()};
        // What was there before, in all rows of all pages.
        const float nan = std::numeric_limits<float>::quiet_NaN();
        Tensor before_k(DType::f32, {1, 2, 80, features}), before_v(DType::f32, {1, 2, 80, features + 2});
        before_k.fill(nan);
        before_v.fill(nan);
        cache.append(std::vector{sequences[0]}, before_k.view(), before_v.view());
        cache.truncate(sequences[0], 0);
        Problem problem({.B = 1, .Hq = 4, .Hkv = 2, .Lq = rows, .Lk = 37, .Dk = features, .Dv = features + 2},
                        9);
        cache.append(std::vector{sequences[0]}, problem.k.view(), problem.v.view());
        Tensor short_k(DType::f32, {1, 2, 21, features}), short_v(DType::f32, {1, 2, 21, features + 2});
        short_k.fill_normal(problem.random);
        short_v.fill_normal(problem.random);
        cache.append(std::vector{sequences[1]}, short_k.view(), short_v.view());
        const KvCache::Batch batch = cache.batch(sequences);
        Tensor q(DType::f32, {2, 4, rows, features}), out(DType::f32, {2, 4, rows, features + 2});
        q.fill_normal(problem.random);
        for (const GuardedCopies::Edge edge : kEdges) {
          GuardedCopies copies(edge);
          kernel::Forward call;
          call.q = copies.copy(kernel::ConstAnyView(q.view()));
          call.out = copies.copy(out.view());
          call.k = {nullptr, DType::f32, {2, 2, batch.keys, features}, {}};
          call.v = {nullptr, DType::f32, {2, 2, batch.keys, features + 2}, {}};
          call.pages = batch.pages;
          for (kernel::PagePool* pool : {&call.pages.k, &call.pages.v}) {
            const size_t numbers = static_cast<size_t>(pool->size[0] * pool->stride[0]);
            pool->data = copies.copy(pool->data, numbers * static_cast<size_t>(kernel::bytes(type)));
            pool->scales = copies.copy(pool->scales);
          }
          call.pages.table64 = reinterpret_cast<const int64_t*>(
              copies.copy(batch.table.data(), batch.table.size() * sizeof(int64_t)));
          const kernel::ForwardTiling tiling = kernel::choose_forward_tiling(call);
          kernel::Serial serial;
          kernel::forward(call, tiling, guard_scratch(kernel::forward_workspace(call, tiling, 1), copies),
                          serial);
          for (const float x : values_of(call.out)) ASSERT_TRUE(std::isfinite(x));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Guard, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::attention
