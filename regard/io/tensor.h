// A tensor as a file holds it: a name, a type, a shape and bytes that belong to someone else.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace regard::io {

// The last group are GGUF's block types: `block_elements` neighbours of one row share a scale.
enum class Type {
  f32,
  f64,
  f16,
  bf16,
  i8,
  u8,
  i16,
  i32,
  i64,
  boolean,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
};

std::string_view type_name(Type type);  // "f32", "q4_k", ...
int64_t block_elements(Type type);      // 1, or 32 or 256 for the block types
int64_t block_bytes(Type type);         // bytes of one element, or of one block
inline bool is_quantized(Type type) {
  return type >= Type::q4_0;
}
inline bool is_float(Type type) {
  return type <= Type::bf16;
}

// Shape is row-major, in NumPy's order (the last index runs fastest); an empty shape is a scalar. `bytes` is
// little-endian, belongs to the file that was opened and need not be aligned for its type.
struct Tensor {
  std::string name;
  Type type = Type::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;

  int64_t elements() const;
  int64_t rows() const;          // product of all sizes but the last; 1 for a vector or scalar
  int64_t row_elements() const;  // the last size; 1 for a scalar
  int64_t row_bytes() const;
  std::string shape_text() const;
};

std::string shape_text(std::span<const int64_t> shape);  // "[384, 1536]"

// Multiplies the sizes; false where one is negative or the product of those that are not 0 does not fit in
// int64_t.
bool count_elements(std::span<const int64_t> shape, int64_t& count);
// The bytes that a tensor takes; false also where its last size is no multiple of the type's block, or where
// the bytes without the sizes that are 0 do not fit.
bool count_bytes(Type type, std::span<const int64_t> shape, int64_t& bytes);

// Rows [row_begin, row_end) as floats, row after row into `out`, which must hold exactly that many values.
// Works for every type: block types by ggml's reference formulas bit for bit, f64 and integers rounded to
// nearest. Throws std::invalid_argument for rows outside the tensor or an `out` of another size.
void dequantize(const Tensor& tensor, int64_t row_begin, int64_t row_end, std::span<float> out);

// The whole tensor as floats.
std::vector<float> to_floats(const Tensor& tensor);

// IEEE half precision. Selects instead of branches, so that loops over it become vector code.
inline float half_to_float(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7fffu;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  // The exponent's bias is 127 instead of 15; infinity and NaN have the largest exponent in both.
  const uint32_t bias = magnitude >= 0x7c00u ? 224u << 23 : 112u << 23;
  const uint32_t normal = (magnitude << 13) + bias;
  const auto subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  return std::bit_cast<float>((magnitude < 0x400u ? subnormal : normal) | sign);
}
inline float bfloat16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
uint16_t float_to_half(float value);  // to nearest, ties to even; NaN stays NaN

template <class T>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr Type value = Type::f32;
};
template <>
struct TypeOf<double> {
  static constexpr Type value = Type::f64;
};
template <>
struct TypeOf<int8_t> {
  static constexpr Type value = Type::i8;
};
template <>
struct TypeOf<uint8_t> {
  static constexpr Type value = Type::u8;
};
template <>
struct TypeOf<int16_t> {
  static constexpr Type value = Type::i16;
};
template <>
struct TypeOf<int32_t> {
  static constexpr Type value = Type::i32;
};
template <>
struct TypeOf<int64_t> {
  static constexpr Type value = Type::i64;
};

// A tensor that looks at the caller's values, for the writers.
template <class T>
Tensor view(std::string name, std::vector<int64_t> shape, std::span<const T> values) {
  return Tensor{std::move(name), TypeOf<T>::value, std::move(shape), std::as_bytes(values)};
}
template <class T>
Tensor view(std::string name, std::vector<int64_t> shape, const std::vector<T>& values) {
  return view(std::move(name), std::move(shape), std::span<const T>(values));
}

// Copies the elements out. Throws Error when the tensor holds another type.
template <class T>
std::vector<T> values(const Tensor& tensor);

}  // namespace regard::io
