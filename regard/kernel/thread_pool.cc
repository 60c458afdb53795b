#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

#include "regard/kernel/parallel.h"

namespace regard::kernel {
namespace {

// The tasks that this thread is inside of, innermost first, so that a nested call is seen.
struct Frame {
  Frame(const void* pool, int worker) : pool(pool), worker(worker), outer(innermost) { innermost = this; }
  ~Frame() { innermost = outer; }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  const void* pool;
  int worker;
  Frame* outer;
  static thread_local Frame* innermost;
};
thread_local Frame* Frame::innermost = nullptr;

// Polls before sleeping: covers the gap between two kernels of one model layer (some 20 us), little enough
// that an idle pool costs nothing.
constexpr int kPolls = 2000;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) : worker_count(threads) {}

  // One call of run(). The generation number publishes it to the workers.
  const TaskRef* task = nullptr;
  int64_t task_count = 0;
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};  // threads that have not left this call yet
  std::exception_ptr error;  // the first one, guarded by mutex

  const int worker_count;
  std::mutex callers;  // one call at a time
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::atomic<uint64_t> generation{0};
  bool stop = false;
  std::vector<std::thread> threads;

  void work(int worker) {
    const Frame frame(this, worker);
    try {
      for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < task_count;
           i = next.fetch_add(1, std::memory_order_relaxed))
        (*task)(i, worker);
    } catch (...) {
      next.store(task_count, std::memory_order_relaxed);  // the rest is not started
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  }

  void serve(int worker) {
    uint64_t seen = 0;
    while (true) {
      for (int i = 0; i < kPolls && generation.load(std::memory_order_acquire) == seen; ++i) relax();
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stop || generation.load(std::memory_order_relaxed) != seen; });
        if (stop) return;
        seen = generation.load(std::memory_order_relaxed);
      }
      work(worker);
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(int threads) {
  if (threads < 1)
    throw std::invalid_argument("a thread pool of " + std::to_string(threads) +
                                " threads was asked for; at least 1 is needed");
  state_ = std::make_unique<State>(threads);
  try {
    for (int worker = 1; worker < threads; ++worker)
      state_->threads.emplace_back([state = state_.get(), worker] { state->serve(worker); });
  } catch (...) {
    {
      const std::lock_guard lock(state_->mutex);
      state_->stop = true;
    }
    state_->generation.fetch_add(1, std::memory_order_release);
    state_->wake.notify_all();
    for (std::thread& thread : state_->threads) thread.join();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->wake.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::workers() const {
  return state_->worker_count;
}

void ThreadPool::run(int64_t task_count, TaskRef task) {
  State& state = *state_;
  if (task_count <= 0) return;
  for (const Frame* frame = Frame::innermost; frame != nullptr; frame = frame->outer) {
    if (frame->pool != &state) continue;
    for (int64_t i = 0; i < task_count; ++i) task(i, frame->worker);  // nested: in place
    return;
  }
  const std::lock_guard caller(state.callers);
  if (task_count == 1 || state.worker_count == 1) {
    const Frame frame(&state, 0);
    for (int64_t i = 0; i < task_count; ++i) task(i, 0);
    return;
  }
  {
    const std::lock_guard lock(state.mutex);
    state.task = &task;
    state.task_count = task_count;
    state.error = nullptr;
    state.next.store(0, std::memory_order_relaxed);
    state.busy.store(state.worker_count - 1, std::memory_order_relaxed);
    state.generation.fetch_add(1, std::memory_order_release);
  }
  state.wake.notify_all();
  state.work(0);
  for (int i = 0; i < kPolls && state.busy.load(std::memory_order_acquire) != 0; ++i) relax();
  std::exception_ptr error;
  {
    std::unique_lock lock(state.mutex);
    state.done.wait(lock, [&] { return state.busy.load(std::memory_order_acquire) == 0; });
    error = state.error;
    state.error = nullptr;
  }
  if (error) std::rethrow_exception(error);
}

namespace {

int usable_cores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int default_threads() {
  const char* text = std::getenv("REGARD_THREADS");
  if (text == nullptr || *text == '\0') return usable_cores();
  int threads = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, failure] = std::from_chars(text, end, threads);
  if (failure != std::errc() || stop != end || threads < 1 || threads > 4096)
    throw std::invalid_argument("REGARD_THREADS is '" + std::string(text) +
                                "'; a number from 1 to 4096 is needed");
  return threads;
}

}  // namespace

Parallel& default_parallel() {
  static ThreadPool pool(default_threads());
  return pool;
}

}  // namespace regard::kernel
