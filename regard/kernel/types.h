#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

// Element types of the kernels' inputs and outputs. Sums are always float32.
namespace regard::kernel {

// Brain float: the upper half of a float32.
struct bf16 {
  uint16_t bits;
};

// IEEE 754 half precision.
struct f16 {
  uint16_t bits;
};

enum class DType : uint8_t { f32, bf16, f16 };

inline const char* name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
  }
  return "unknown";
}

inline int64_t bytes(DType dtype) {
  return dtype == DType::f32 ? 4 : 2;
}

// run(T()) with the element type that dtype names.
template <class F>
decltype(auto) with_type(DType dtype, F&& run) {
  switch (dtype) {
    case DType::bf16:
      return run(bf16());
    case DType::f16:
      return run(f16());
    case DType::f32:
      break;
  }
  return run(float());
}

template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<f16> {
  static constexpr DType value = DType::f16;
};

inline float to_float(float x) {
  return x;
}

inline float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

float to_float(f16 x);

// Rounds to nearest even on every target; NaN stays NaN.
bf16 to_bf16(float x);
f16 to_f16(float x);

inline void round_to(float x, float& to) {
  to = x;
}
inline void round_to(float x, bf16& to) {
  to = to_bf16(x);
}
inline void round_to(float x, f16& to) {
  to = to_f16(x);
}

}  // namespace regard::kernel
