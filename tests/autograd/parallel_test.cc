#include "regard/autograd/parallel.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace regard::autograd {
namespace {

class AtParallelTest : public ::testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(2); }
};

TEST_F(AtParallelTest, TwoWorkersRunAtOnce) {
  ASSERT_EQ(at_parallel().workers(), 2);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::set<int> workers;
  std::atomic<int> inside{0};
  std::atomic<bool> met{false};
  at_parallel().run(2, [&](int64_t, int worker) {
    {
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
      workers.insert(worker);
    }
    // Each task waits for the other: only two threads at once let both go on.
    ++inside;
    const auto start = std::chrono::steady_clock::now();
    while (inside < 2 && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
      std::this_thread::yield();
    }
    if (inside == 2) met = true;
  });
  EXPECT_TRUE(met);
  EXPECT_EQ(threads.size(), 2U);
  EXPECT_EQ(workers, (std::set<int>{0, 1}));
}

TEST_F(AtParallelTest, EachTaskRunsOnce) {
  for (const int64_t count : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
    at_parallel().run(count, [&](int64_t task, int worker) {
      ASSERT_LT(worker, 2);
      ++runs[static_cast<size_t>(task)];
    });
    for (const auto& run : runs) EXPECT_EQ(run, 1);
  }
}

TEST_F(AtParallelTest, AnExceptionReachesTheCallerAndThePoolStaysUsable) {
  EXPECT_THROW(at_parallel().run(100,
                                 [](int64_t task, int) {
                                   if (task == 57) throw std::runtime_error("task 57");
                                 }),
               std::runtime_error);
  std::atomic<int> runs{0};
  at_parallel().run(10, [&](int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 10);
}

TEST_F(AtParallelTest, ACallFromInsideATaskRunsInPlace) {
  std::atomic<int> runs{0};
  at_parallel().run(2, [&](int64_t, int) {
    const auto outer = std::this_thread::get_id();
    at_parallel().run(5, [&](int64_t, int worker) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      EXPECT_EQ(worker, 0);
      ++runs;
    });
  });
  EXPECT_EQ(runs, 10);
}

}  // namespace
}  // namespace regard::autograd
