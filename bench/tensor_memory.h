#pragma once

#include <cstdint>

namespace regard::bench {

// Counts the bytes of libtorch's tensors while it lives (one at a time): what a run needs, whatever the
// process has kept from before. Tensors made meanwhile may outlive it.
class TensorMemory {
 public:
  TensorMemory();
  ~TensorMemory();
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;

  void reset_peak();      // the highest from now on
  int64_t bytes() const;  // of tensors made since the first counter began
  int64_t peak() const;
};

}  // namespace regard::bench
