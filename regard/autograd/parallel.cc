#include "regard/autograd/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#ifndef _OPENMP
#error "compile this file with -fopenmp: without it at::parallel_for runs on one thread"
#endif

namespace regard::autograd {

int AtParallel::workers() const {
  return at::get_num_threads();
}

void AtParallel::run(int64_t task_count, kernel::TaskRef task) {
  const int64_t workers = std::min<int64_t>(task_count, at::get_num_threads());
  if (workers <= 1 || at::in_parallel_region()) {
    for (int64_t i = 0; i < task_count; ++i) task(i, 0);
    return;
  }
  // Tasks differ in cost (causal masks): each worker takes the next one instead of a fixed share.
  std::atomic<int64_t> next{0};
  at::parallel_for(0, workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) {
      try {
        for (int64_t i = next++; i < task_count; i = next++) task(i, static_cast<int>(worker));
      } catch (...) {
        next = task_count;  // the others stop after their task; parallel_for hands the exception on
        throw;
      }
    }
  });
}

AtParallel& at_parallel() {
  static AtParallel parallel;
  return parallel;
}

}  // namespace regard::autograd
