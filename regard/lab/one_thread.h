#pragma once

#include <ATen/Parallel.h>

namespace regard::lab {

// Work so small is slower on two threads than on one: they would wait for each other at every operator.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = at::get_num_threads();
};

}  // namespace regard::lab
