#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "regard/kernel/parallel.h"

namespace regard::kernel {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceWithAWorkerInRange) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.workers(), threads);
    for (const int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(static_cast<size_t>(tasks));  // not atomic: a task that ran twice is a race
      std::atomic<bool> in_range{true};
      pool.run(tasks, [&](int64_t task, int worker) {
        ++runs[static_cast<size_t>(task)];
        if (worker < 0 || worker >= threads) in_range = false;
      });
      for (const int count : runs) EXPECT_EQ(count, 1);
      EXPECT_TRUE(in_range);
    }
  }
}

TEST(ThreadPool, WorkersShareTheTasks) {
  ThreadPool pool(3);
  std::atomic<int> inside{0};
  std::atomic<bool> met{false};
  // Each task waits for another thread to be in one too.
  pool.run(3, [&](int64_t, int) {
    ++inside;
    for (int i = 0; i < 20000 && inside < 2; ++i) std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (inside >= 2) met = true;
  });
  EXPECT_TRUE(met);
}

TEST(ThreadPool, OneWorkerNumberIsNeverUsedByTwoThreadsAtOnce) {
  ThreadPool pool(4);
  std::vector<int> scratch(4);  // written without a lock, as kernels write theirs
  pool.run(2000, [&](int64_t, int worker) { ++scratch[static_cast<size_t>(worker)]; });
  int sum = 0;
  for (const int n : scratch) sum += n;
  EXPECT_EQ(sum, 2000);
}

TEST(ThreadPool, ExceptionReachesTheCallerAndThePoolStaysUsable) {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 20; ++round) {
      EXPECT_THROW(pool.run(100,
                            [](int64_t task, int) {
                              if (task == 37) throw std::runtime_error("task 37");
                            }),
                   std::runtime_error);
      std::atomic<int> count{0};
      pool.run(50, [&](int64_t, int) { ++count; });
      EXPECT_EQ(count, 50);
    }
  }
}

TEST(ThreadPool, NestedCallRunsInPlace) {
  ThreadPool pool(3);
  ThreadPool other(2);
  std::atomic<int> count{0};
  pool.run(10, [&](int64_t, int worker) {
    const auto outer = std::this_thread::get_id();
    pool.run(5, [&](int64_t, int inner_worker) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      EXPECT_EQ(inner_worker, worker);
      ++count;
    });
    // Through another pool and back.
    other.run(1, [&](int64_t, int) { pool.run(2, [&](int64_t, int) { ++count; }); });
  });
  EXPECT_EQ(count, 10 * 5 + 10 * 2);
}

TEST(ThreadPool, CallsFromSeveralThreadsTakeTurns) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int> count{0};
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) pool.run(20, [&](int64_t, int) { ++count; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(count, 4 * 50 * 20);
}

TEST(ThreadPool, RefusesNoThreads) {
  EXPECT_THROW(ThreadPool(0), std::invalid_argument);
  EXPECT_THROW(ThreadPool(-3), std::invalid_argument);
}

TEST(ThreadPool, DefaultHasAWorker) {
  EXPECT_GE(default_parallel().workers(), 1);
  EXPECT_EQ(&default_parallel(), &default_parallel());
}

}  // namespace
}  // namespace regard::kernel
