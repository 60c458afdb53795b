#include "bench/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>

namespace regard::bench {
namespace {

std::atomic<int64_t> held{0};
std::atomic<int64_t> highest{0};

void give_back(void* data) {
  if (data == nullptr) return;
  held -= static_cast<int64_t>(malloc_usable_size(data));
  c10::free_cpu(data);
}

// libtorch's own memory, counted.
class Counting final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = c10::alloc_cpu(bytes);
    if (data != nullptr) {
      const int64_t now = held += static_cast<int64_t>(malloc_usable_size(data));
      int64_t before = highest;
      while (now > before && !highest.compare_exchange_weak(before, now)) {
      }
    }
    return {data, data, &give_back, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

// Replaced by an allocator of at least the priority of the one in place.
void use(c10::Allocator* allocator) {
  static uint8_t priority = 1;
  c10::SetCPUAllocator(allocator, priority);
}

}  // namespace

TensorMemory::TensorMemory() {
  static Counting counting;
  use(&counting);
  reset_peak();
}

TensorMemory::~TensorMemory() {
  use(c10::GetDefaultCPUAllocator());
}

void TensorMemory::reset_peak() {
  highest = held.load();
}

int64_t TensorMemory::bytes() const {
  return held;
}

int64_t TensorMemory::peak() const {
  return highest;
}

}  // namespace regard::bench
