#pragma once

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <string>

#include "regard/kernel/view.h"

// For the room's own use: what is wrong with a view that a caller gave, as the end of a sentence; empty:
// nothing.
namespace regard::attention {

inline std::string text(const kernel::Extents& size) {
  std::ostringstream out;
  out << '[' << size[0] << ", " << size[1] << ", " << size[2] << ", " << size[3] << ']';
  return out.str();
}

inline bool is_empty(const kernel::Extents& size) {
  return size[0] == 0 || size[1] == 0 || size[2] == 0 || size[3] == 0;
}

template <class V>
bool is_given(const V& view) {
  return view.data != nullptr || view.size != kernel::Extents{};
}

// Sizes are at least 0.
template <class V>
std::string size_fault(const char* name, const V& view) {
  for (const int64_t size : view.size) {
    if (size < 0) return std::string(name) + " has sizes " + text(view.size) + "; allowed: 0 or more";
  }
  return {};
}

// Every element's offset lies within int64 bytes; there is data where there are elements.
template <class V>
std::string storage_fault(const char* name, const V& view) {
  if (is_empty(view.size)) return {};
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 8;
  int64_t count = 1;
  int64_t reach = 0;
  for (int axis = 0; axis < 4; ++axis) {
    int64_t step = 0;
    // -(2^63) has no positive twin: refuse it with the rest.
    if (__builtin_mul_overflow(count, view.size[axis], &count) || count > kMost ||
        view.stride[axis] == std::numeric_limits<int64_t>::min() ||
        __builtin_mul_overflow(view.size[axis] - 1, std::abs(view.stride[axis]), &step) ||
        __builtin_add_overflow(reach, step, &reach) || reach > kMost) {
      return std::string(name) + " has sizes " + text(view.size) + " and strides " + text(view.stride) +
             "; allowed: offsets below 2^60 elements";
    }
  }
  if (view.data == nullptr) {
    return std::string(name) + " has sizes " + text(view.size) + " but no data; allowed: a pointer";
  }
  return {};
}

// What is written has a place of its own for each element.
template <class V>
std::string sharing_fault(const char* name, const V& view) {
  if (is_empty(view.size)) return {};
  for (int axis = 0; axis < 4; ++axis) {
    if (view.size[axis] > 1 && view.stride[axis] == 0) {
      return std::string(name) + " has sizes " + text(view.size) + " and strides " + text(view.stride) +
             "; allowed: a place of its own for each element (no stride 0)";
    }
  }
  return {};
}

}  // namespace regard::attention
