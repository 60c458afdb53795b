#pragma once

#include "regard/kernel/parallel.h"

namespace regard::autograd {

// Kernels on libtorch's own threads (at::parallel_for), so that a process that also runs at:: operators keeps
// one set of threads; at::set_num_threads() rules both. Stateless: one object serves all.
class AtParallel final : public kernel::Parallel {
 public:
  int workers() const override;
  void run(int64_t task_count, kernel::TaskRef task) override;
};

AtParallel& at_parallel();

}  // namespace regard::autograd
