#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace regard::kernel {

// A borrowed callable: fn(task, worker). It must outlive the call that it is passed to.
class TaskRef {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, TaskRef>) TaskRef(F&& fn)
      : self_(const_cast<void*>(static_cast<const void*>(&fn))),
        call_([](void* self, int64_t task, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(self))(task, worker);
        }) {}

  void operator()(int64_t task, int worker) const { call_(self_, task, worker); }

 private:
  void* self_;
  void (*call_)(void*, int64_t, int);
};

// Where a kernel's tasks run. Results never depend on it: tasks are cut by the problem, not by the workers.
class Parallel {
 public:
  virtual ~Parallel() = default;
  virtual int workers() const = 0;
  // Runs tasks 0 .. task_count - 1, each once, with worker < workers(), and returns when all are done. An
  // exception of a task reaches the caller; the pool stays usable. A call from inside a task runs its tasks
  // in place.
  virtual void run(int64_t task_count, TaskRef task) = 0;
};

class Serial final : public Parallel {
 public:
  int workers() const override { return 1; }
  void run(int64_t task_count, TaskRef task) override {
    for (int64_t i = 0; i < task_count; ++i) task(i, 0);
  }
};

// std::thread workers that sleep between calls; the calling thread works too.
class ThreadPool final : public Parallel {
 public:
  // threads >= 1; throws std::invalid_argument otherwise.
  explicit ThreadPool(int threads);
  ~ThreadPool() override;
  int workers() const override;
  void run(int64_t task_count, TaskRef task) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One pool for the process, made at first use: REGARD_THREADS workers, else one per usable core.
Parallel& default_parallel();

}  // namespace regard::kernel
