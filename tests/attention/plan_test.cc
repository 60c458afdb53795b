#include "regard/attention/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <tuple>

#include "regard/attention/attention.h"
#include "regard/attention/reference.h"
#include "tests/attention/problem.h"
#include "tests/support/compare.h"

namespace {
std::atomic<int64_t> allocations{0};

void* allocate(std::size_t size, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  if (void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded)) return memory;
  throw std::bad_alloc();
}
}  // namespace

// This program counts what it allocates.
void* operator new(std::size_t size) {
  return allocate(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
// What the library's own sorting asks by; its memory too goes back by the operators below.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size != 0 ? size : 1);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace regard::attention {
namespace {

using ::testing::HasSubstr;
using testing::is_close;
using testing::Problem;
using testing::Sizes;

struct Workspace {
  explicit Workspace(size_t bytes)
      : size(bytes), memory(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}))) {}
  ~Workspace() { ::operator delete (memory, std::align_val_t{64}); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  std::span<std::byte> span() const { return {memory, size}; }

  size_t size;
  std::byte* memory;
};

void expect_reference(Problem& problem, const Operands& operands) {
  const Reference plain = reference(problem.spec, operands);
  const testing::Bound bound = testing::float32_bound(testing::largest_finite(plain.logits));
  EXPECT_TRUE(is_close(problem.out.values(), plain.out, bound));
}

TEST(Plan, RunAllocatesNothing) {
  for (const int64_t rows : {1, 40}) {
    Problem problem({.B = 2, .Hq = 4, .Hkv = 2, .Lq = rows, .Lk = 300, .Dk = 32, .Dv = 32}, 1);
    problem.spec.mask = Mask::causal(Align::bottom_right) & Mask::window(100, -1, Align::bottom_right);
    problem.add_dense_mask({1, 1, rows, 300}, 0.9);
    problem.add_key_lengths();
    problem.add_sinks();
    const Operands operands = problem.operands();
    const Plan plan(problem.spec, operands);
    kernel::ThreadPool pool(2);
    const Workspace workspace(plan.workspace_bytes(2));
    plan.run(operands, workspace.span(), pool);  // whatever is made once
    const int64_t before = allocations.load();
    plan.run(operands, workspace.span(), pool);
    EXPECT_EQ(allocations.load(), before) << rows << " rows";
    expect_reference(problem, operands);
  }
}

TEST(Plan, ServesLaterOperandsElsewhere) {
  const Sizes sizes{.B = 1, .Hq = 2, .Hkv = 2, .Lq = 20, .Lk = 30, .Dk = 8, .Dv = 8};
  Problem first(sizes, 2);
  const Plan plan(first.spec, first.operands());
  const Workspace workspace(plan.workspace_bytes(1));
  kernel::Serial serial;
  Problem second(sizes, 3, kernel::DType::f32, testing::Layout::position_major);
  plan.run(second.operands(), workspace.span(), serial);
  expect_reference(second, second.operands());
}

TEST(Plan, OfADecoderServesEveryContextUpToThePlanned) {
  Problem longest({.B = 1, .Hq = 4, .Hkv = 2, .Lq = 1, .Lk = 1000, .Dk = 16, .Dv = 16}, 4);
  longest.spec.mask = Mask::causal(Align::bottom_right);
  const Plan plan(longest.spec, longest.operands());
  kernel::ThreadPool pool(2);
  const Workspace workspace(plan.workspace_bytes(2));
  for (const int64_t keys : {1, 2, 15, 16, 17, 255, 256, 999, 1000}) {
    Operands operands = longest.operands();
    operands.k.size[2] = keys;
    operands.v.size[2] = keys;
    plan.run(operands, workspace.span(), pool);
    SCOPED_TRACE(std::to_string(keys) + " keys");
    expect_reference(longest, operands);
  }
}

TEST(Plan, IsAFunctionOfTheProblemNotOfTheWorkers) {
  Problem problem({.B = 1, .Hq = 2, .Hkv = 2, .Lq = 100, .Lk = 100, .Dk = 8, .Dv = 8}, 5);
  const Plan plan(problem.spec, problem.operands());
  EXPECT_EQ(plan.to_string(), Plan(problem.spec, problem.operands()).to_string());
  EXPECT_LE(plan.workspace_bytes(1), plan.workspace_bytes(4));
}

TEST(Plan, PrintsWhatWillHappenAndWhy) {
  Problem problem({.B = 1, .Hq = 2, .Hkv = 1, .Lq = 128, .Lk = 128, .Dk = 8, .Dv = 16}, 6);
  problem.spec.mask = Mask::causal(Align::top_left);
  const std::string text = Plan(problem.spec, problem.operands()).to_string();
  for (const char* part : {"q [1, 2, 128, 8] f32", "v [1, 1, 128, 16]", "causal(top_left)", "kernel: prefill",
                           "scratch: ", "live tiles: ", "reason: "}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  problem.add_dense_mask({1, 1, 128, 128}, 0.5);
  EXPECT_THAT(Plan(problem.spec, problem.operands()).to_string(), HasSubstr("live tiles: at most "));
}

// A register tile takes rows of one head: a token leaves it empty, however many heads share its keys.
TEST(Plan, ReadsKeysInPlaceForAFewTokensOfManyHeads) {
  for (const auto& [heads, rows, kernel] : {std::tuple{128, 1, "kernel: decode"},
                                            {40, 4, "kernel: decode"},
                                            {4, 5, "kernel: prefill"},
                                            {2, 8, "kernel: decode"}}) {
    Problem problem({.Hq = heads, .Lq = rows, .Lk = 40, .Dk = 4, .Dv = 4}, 8);
    EXPECT_THAT(Plan(problem.spec, problem.operands()).to_string(), HasSubstr(kernel))
        << heads << ", " << rows;
  }
}

TEST(Plan, RefusesAMalformedCallWhenItIsMade) {
  Problem problem({.Lq = 3, .Lk = 4, .Dk = 2, .Dv = 2}, 7);
  Operands operands = problem.operands();
  operands.out = {};
  EXPECT_THROW(Plan(problem.spec, operands), std::invalid_argument);
}

TEST(Attention, WithDefaultsNeedsThreeViews) {
  Problem problem({.B = 2, .Hq = 4, .Hkv = 2, .Lq = 7, .Lk = 9, .Dk = 8, .Dv = 6}, 8);
  const Operands operands = problem.operands();
  const Result result = attention(operands.q, operands.k, operands.v);
  const Reference plain = reference({}, operands);
  const testing::Bound bound = testing::float32_bound(testing::largest_finite(plain.logits));
  EXPECT_TRUE(is_close(result.out, plain.out, bound));
  EXPECT_TRUE(is_close(result.lse, plain.lse, bound));
}

}  // namespace
}  // namespace regard::attention
