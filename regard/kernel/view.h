#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "regard/kernel/types.h"

// Borrowed, strided views. Nothing here owns memory; slicing and transposing never copy.
namespace regard::kernel {

// Axes of every view, in this order: batch, head, position, feature.
using Extents = std::array<int64_t, 4>;

inline Extents contiguous_strides(const Extents& size) {
  return {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1};
}

// Strides are in elements and may be any number; 0 repeats an element along an axis (inputs only).
template <class T>
struct View {
  T* data = nullptr;
  Extents size{};
  Extents stride{};

  View() = default;
  View(T* data, const Extents& size) : data(data), size(size), stride(contiguous_strides(size)) {}
  View(T* data, const Extents& size, const Extents& stride) : data(data), size(size), stride(stride) {}

  // A view of mutable elements serves as a view of constant ones.
  template <class U>
  requires(std::is_same_v<T, const U>) View(const View<U>& other)
      : data(other.data), size(other.size), stride(other.stride) {}

  explicit operator bool() const { return data != nullptr; }

  T* at(int64_t batch, int64_t head, int64_t position) const {
    return data + batch * stride[0] + head * stride[1] + position * stride[2];
  }
  T& operator()(int64_t batch, int64_t head, int64_t position, int64_t feature) const {
    return at(batch, head, position)[feature * stride[3]];
  }
};

// A view whose element type is known at run time only: what a plan and a dispatched kernel take.
template <class Void>
struct BasicAnyView {
  Void* data = nullptr;
  DType dtype = DType::f32;
  Extents size{};
  Extents stride{};

  BasicAnyView() = default;
  BasicAnyView(Void* data, DType dtype, const Extents& size, const Extents& stride)
      : data(data), dtype(dtype), size(size), stride(stride) {}

  template <class T>
  requires(std::is_convertible_v<T*, Void*>) BasicAnyView(const View<T>& view)
      : data(view.data),
        dtype(dtype_of<std::remove_const_t<T>>::value),
        size(view.size),
        stride(view.stride) {}

  template <class Other>
  requires(std::is_same_v<Void, const Other>) BasicAnyView(const BasicAnyView<Other>& other)
      : data(other.data), dtype(other.dtype), size(other.size), stride(other.stride) {}

  explicit operator bool() const { return data != nullptr; }

  // Caller must know the type: T has to match dtype.
  template <class T>
  View<T> as() const {
    return {static_cast<T*>(data), size, stride};
  }
};

using AnyView = BasicAnyView<void>;
using ConstAnyView = BasicAnyView<const void>;

}  // namespace regard::kernel
