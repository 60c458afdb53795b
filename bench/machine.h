#pragma once

#include "regard/kernel/parallel.h"

namespace regard::bench {

// Seconds of this thread's processor time: preemption by other processes is left out.
double thread_seconds();

// Seconds of a clock on the wall.
double wall_seconds();

// What the machine gives at this moment; virtual machines drift by a factor of two within an hour.
struct Machine {
  double peak_gflops;  // float32 multiply-adds from registers, all workers together
  double read_gbytes;  // sum over a buffer larger than the caches, GB/s
};

// Takes some 30 ms. By processor time with one worker, by wall time with more. Uses the kernels' active
// target.
Machine measure_machine(kernel::Parallel& parallel);

}  // namespace regard::bench
