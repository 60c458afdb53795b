#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/kernel/problem.h"

// GCC, with a sanitizer, takes the operators below for a mismatch.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace {

std::atomic<int64_t> allocations{0};

}  // namespace

// Counts every allocation of this program.
void* operator new(size_t size) {
  ++allocations;
  if (void* p = std::malloc(size != 0 ? size : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size != 0 ? size : 1);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

namespace regard::kernel::testing {
namespace {

Forward shape(int64_t heads, int64_t kv_heads, int64_t rows, int64_t keys, int64_t dk, int64_t dv) {
  Forward p;
  p.q = View<const float>(nullptr, {1, heads, rows, dk});
  p.k = View<const float>(nullptr, {1, kv_heads, keys, dk});
  p.v = View<const float>(nullptr, {1, kv_heads, keys, dv});
  return p;
}

// pytorch issue of the same shape: d_k != d_v took 601 MiB for the scores of 4096 keys.
TEST(Workspace, GrowsWithTheKeysNotWithTheSquare) {
  for (const int workers : {1, 2, 8}) {
    size_t before = 0;
    for (const int64_t length : {4096, 8192, 16384, 32768}) {
      const Forward p = shape(4, 4, length, length, 192, 128);
      const size_t bytes = forward_workspace(p, choose_forward_tiling(p), workers);
      EXPECT_LT(bytes, static_cast<size_t>((length * 4 * (192 + 128) + 500'000 * workers) * 4) + 1'000'000);
      if (before != 0) {
        EXPECT_LE(bytes, 2 * before);
      }
      before = bytes;
    }
  }
}

TEST(Workspace, ServesAnySmallerNumberOfKeys) {
  for (const int64_t rows : {1, 100})
    for (const int workers : {1, 3}) {
      const Forward longest = shape(6, 2, rows, 5000, 64, 64);
      const ForwardTiling tiling = choose_forward_tiling(longest);
      const size_t bytes = forward_workspace(longest, tiling, workers);
      for (const int64_t keys : {0, 1, 511, 512, 513, 4096, 4097, 4999})
        EXPECT_LE(forward_workspace(shape(6, 2, rows, keys, 64, 64), tiling, workers), bytes) << keys;
    }
}

TEST(Workspace, TilingIsAFunctionOfTheProblemAlone) {
  EXPECT_EQ(choose_forward_tiling(shape(32, 8, 1, 8192, 128, 128)).kind, ForwardTiling::Kind::decode);
  EXPECT_EQ(choose_forward_tiling(shape(8, 8, 512, 512, 64, 64)).kind, ForwardTiling::Kind::prefill);
  Forward strided = shape(32, 8, 1, 8192, 128, 128);
  strided.k.stride[3] = 2;
  EXPECT_EQ(choose_forward_tiling(strided).kind, ForwardTiling::Kind::prefill);
}

TEST(Workspace, TooLittleIsRefused) {
  const Forward p = shape(1, 1, 8, 8, 8, 8);
  Serial serial;
  std::byte little[64];
  EXPECT_THROW(forward(p, choose_forward_tiling(p), little, serial), std::invalid_argument);
}

TEST(Workspace, DecodingNeedsFeaturesSideBySide) {
  Forward p = shape(1, 1, 1, 8, 8, 8);
  p.v.stride[3] = 3;
  ForwardTiling tiling;
  tiling.kind = ForwardTiling::Kind::decode;
  tiling.split_keys = 512;
  Workspace workspace(forward_workspace(p, tiling, 1));
  Serial serial;
  EXPECT_THROW(forward(p, tiling, workspace.span(), serial), std::invalid_argument);
}

TEST(Workspace, RunningAllocatesNothing) {
  for (const int64_t rows : {1, 40}) {
    auto q = make_tensor<bf16>({2, 4, rows, 24}, Layout::position_major, to_bf16(0.5F));
    auto k = make_tensor<bf16>({2, 2, 600, 24}, Layout::position_major, to_bf16(0.25F));
    auto v = make_tensor<bf16>({2, 2, 600, 20}, Layout::position_major, to_bf16(1.0F));
    auto out = make_tensor<float>({2, 4, rows, 20}, Layout::contiguous, 0.0F);
    auto lse = make_tensor<float>({2, 4, rows, 1}, Layout::contiguous, 0.0F);
    const PredicateMask mask{[](int64_t, int64_t, int64_t i, int64_t j) { return j < 500 + i; }, 600};
    Forward p;
    p.q = q.view();
    p.k = k.view();
    p.v = v.view();
    p.out = out.view();
    p.lse = lse.view();
    p.mask = mask.lowered();
    const ForwardTiling tiling = choose_forward_tiling(p);
    ThreadPool pool(2);
    Workspace workspace(forward_workspace(p, tiling, 2));
    forward(p, tiling, workspace.span(), pool);
    const int64_t before = allocations;
    for (int i = 0; i < 3; ++i) forward(p, tiling, workspace.span(), pool);
    EXPECT_EQ(allocations, before);
    EXPECT_NEAR(out(1, 3, rows - 1, 19), 1.0F, 1e-6F);
  }
}

}  // namespace
}  // namespace regard::kernel::testing
