#include "regard/kernel/types.h"

namespace regard::kernel {

float to_float(f16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000U) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7FFFU) << 13;
  if (magnitude >= 0x0F800000U)  // infinity or NaN: the exponent is all ones in both formats
    return std::bit_cast<float>(sign | 0x70000000U | magnitude);
  // 2^112 moves the exponent bias of binary16 to that of binary32; subnormal halves become exact normal
  // floats.
  const float value = std::bit_cast<float>(magnitude) * std::bit_cast<float>(0x77800000U);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U)  // NaN: rounding could carry it to infinity
    return {static_cast<uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}

f16 to_f16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return {static_cast<uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU))};
  if (magnitude >= 0x477FF000U) return {static_cast<uint16_t>(sign | 0x7C00U)};  // rounds to infinity
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the result is subnormal: adding 0.5 makes the float unit round to the spacing 2^-24.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U))};
  }
  const uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - 0x38000000U;
  return {static_cast<uint16_t>(sign | (rounded >> 13))};
}

}  // namespace regard::kernel
