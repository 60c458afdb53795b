// What the fuzz targets share: they end the process when an accepted input breaks a promise of its reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "regard/io/tensor.h"

namespace regard::fuzz {

inline void require(bool promise) {
  if (!promise) std::abort();
}

inline std::span<const std::byte> as_bytes(const uint8_t* data, size_t size) {
  return std::as_bytes(std::span(data, size));
}

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Every tensor that a reader hands out lies inside `owner` (where given), has the bytes of its shape and can
// be read.
inline void check_tensors(const std::vector<io::Tensor>& tensors, std::span<const std::byte> owner = {}) {
  for (const io::Tensor& tensor : tensors) {
    int64_t bytes = -1;
    require(io::count_bytes(tensor.type, tensor.shape, bytes));
    require(static_cast<uint64_t>(bytes) == tensor.bytes.size());
    if (!owner.empty() && !tensor.bytes.empty()) {
      require(tensor.bytes.data() >= owner.data());
      require(tensor.bytes.data() + tensor.bytes.size() <= owner.data() + owner.size());
    }
    if (tensor.elements() < 1'000'000) io::to_floats(tensor);
  }
}

}  // namespace regard::fuzz
