#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace regard::attention {

// Memory of one run, aligned as kernels want it; not initialised.
class Scratch {
 public:
  explicit Scratch(size_t size)
      : data_(static_cast<std::byte*>(::operator new(size, kAlignment))), size_(size) {}
  std::span<std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Release {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
  };
  std::unique_ptr<std::byte, Release> data_;
  size_t size_;
};

}  // namespace regard::attention
