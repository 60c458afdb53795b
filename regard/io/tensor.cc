#include "regard/io/tensor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "regard/io/dequantize.h"
#include "regard/io/error.h"

namespace regard::io {

static_assert(std::endian::native == std::endian::little, "files are little-endian and read in place");

namespace {

struct TypeFacts {
  std::string_view name;
  int64_t elements;
  int64_t bytes;
};

constexpr std::array<TypeFacts, 18> kTypes = {{{"f32", 1, 4},
                                               {"f64", 1, 8},
                                               {"f16", 1, 2},
                                               {"bf16", 1, 2},
                                               {"i8", 1, 1},
                                               {"u8", 1, 1},
                                               {"i16", 1, 2},
                                               {"i32", 1, 4},
                                               {"i64", 1, 8},
                                               {"boolean", 1, 1},
                                               {"q4_0", 32, 18},
                                               {"q4_1", 32, 20},
                                               {"q5_0", 32, 22},
                                               {"q5_1", 32, 24},
                                               {"q8_0", 32, 34},
                                               {"q4_k", 256, 144},
                                               {"q5_k", 256, 176},
                                               {"q6_k", 256, 210}}};

const TypeFacts& facts(Type type) {
  return kTypes.at(static_cast<size_t>(type));
}

// Unaligned elements of type T, converted one by one.
template <class T, class Convert>
void convert(const std::byte* in, std::span<float> out, Convert to_float) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, in + i * sizeof(T), sizeof(T));
    out[i] = to_float(value);
  }
}

template <class T>
void convert(const std::byte* in, std::span<float> out) {
  convert<T>(in, out, [](T value) { return static_cast<float>(value); });
}

// The product of all sizes but the zeros, so that the product of any of them fits as well; false when it does
// not.
bool multiply_nonzero(std::span<const int64_t> shape, int64_t& product) {
  product = 1;
  for (const int64_t size : shape) {
    if (size < 0 || (size > 0 && __builtin_mul_overflow(product, size, &product))) return false;
  }
  return true;
}

bool has_zero(std::span<const int64_t> shape) {
  return std::ranges::find(shape, 0) != shape.end();
}

}  // namespace

std::string_view type_name(Type type) {
  return facts(type).name;
}
int64_t block_elements(Type type) {
  return facts(type).elements;
}
int64_t block_bytes(Type type) {
  return facts(type).bytes;
}

bool count_elements(std::span<const int64_t> shape, int64_t& count) {
  if (!multiply_nonzero(shape, count)) return false;
  if (has_zero(shape)) count = 0;
  return true;
}

bool count_bytes(Type type, std::span<const int64_t> shape, int64_t& bytes) {
  const int64_t row = shape.empty() ? 1 : shape.back();
  int64_t count = 0;
  if (!multiply_nonzero(shape, count) || row % block_elements(type) != 0) return false;
  // The rows of an empty tensor are measured like others: their bytes must fit too.
  const int64_t blocks = count / block_elements(type) + (count % block_elements(type) != 0 ? 1 : 0);
  if (__builtin_mul_overflow(blocks, block_bytes(type), &bytes)) return false;
  if (has_zero(shape)) bytes = 0;
  return true;
}

int64_t Tensor::elements() const {
  int64_t count = 0;
  if (!count_elements(shape, count)) throw std::invalid_argument("tensor " + name + " has no valid shape");
  return count;
}

int64_t Tensor::rows() const {
  int64_t count = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
  return count;
}

int64_t Tensor::row_elements() const {
  return shape.empty() ? 1 : shape.back();
}

int64_t Tensor::row_bytes() const {
  return row_elements() / block_elements(type) * block_bytes(type);
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

std::string Tensor::shape_text() const {
  return io::shape_text(shape);
}

void dequantize(const Tensor& tensor, int64_t row_begin, int64_t row_end, std::span<float> out) {
  const int64_t row = tensor.row_elements();
  if (row_begin < 0 || row_end < row_begin || row_end > tensor.rows()) {
    throw std::invalid_argument("dequantize: rows " + std::to_string(row_begin) + " to " +
                                std::to_string(row_end) + " of tensor " + tensor.name + " with " +
                                std::to_string(tensor.rows()) + " rows");
  }
  const int64_t count = (row_end - row_begin) * row;
  if (static_cast<int64_t>(out.size()) != count) {
    throw std::invalid_argument("dequantize: out holds " + std::to_string(out.size()) + " values, " +
                                std::to_string(count) + " are needed for tensor " + tensor.name);
  }
  if (static_cast<int64_t>(tensor.bytes.size()) < row_end * tensor.row_bytes()) {
    throw std::invalid_argument("dequantize: tensor " + tensor.name + " has fewer bytes than its shape says");
  }
  if (count == 0) return;
  const std::byte* in = tensor.bytes.data() + row_begin * tensor.row_bytes();
  switch (tensor.type) {
    case Type::f32:
      std::memcpy(out.data(), in, out.size_bytes());
      return;
    case Type::f64:
      return convert<double>(in, out);
    case Type::f16:
      return convert<uint16_t>(in, out, half_to_float);
    case Type::bf16:
      return convert<uint16_t>(in, out, bfloat16_to_float);
    case Type::i8:
      return convert<int8_t>(in, out);
    case Type::u8:
      return convert<uint8_t>(in, out);
    case Type::i16:
      return convert<int16_t>(in, out);
    case Type::i32:
      return convert<int32_t>(in, out);
    case Type::i64:
      return convert<int64_t>(in, out);
    case Type::boolean:
      return convert<uint8_t>(in, out, [](uint8_t value) { return value != 0 ? 1.0f : 0.0f; });
    default:
      return dequantize_blocks(tensor.type, in, count / block_elements(tensor.type), out.data());
  }
}

std::vector<float> to_floats(const Tensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.elements()));
  dequantize(tensor, 0, tensor.rows(), out);
  return out;
}

uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (magnitude >= 0x47800000u) return sign | 0x7c00u;  // 2^16 and more: infinity
  // The result is `kept` with the lower `shift` bits rounded away; a carry runs into the exponent as it
  // should.
  uint32_t kept = magnitude - (112u << 23);
  uint32_t shift = 13;
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24
    if (magnitude < 0x33000000u) return sign;
    kept = (magnitude & 0x7fffffu) | 0x800000u;
    shift = 126 - (magnitude >> 23);
  }
  const uint32_t half = 1u << (shift - 1);
  const uint32_t odd = (kept >> shift) & 1;
  return static_cast<uint16_t>(sign | ((kept + half - 1 + odd) >> shift));
}

template <class T>
std::vector<T> values(const Tensor& tensor) {
  if (tensor.type != TypeOf<T>::value) {
    throw Error("tensor " + io::quoted(tensor.name) + " holds " + std::string(type_name(tensor.type)) + ", " +
                std::string(type_name(TypeOf<T>::value)) + " was expected");
  }
  std::vector<T> result(static_cast<size_t>(tensor.elements()));
  if (tensor.bytes.size() != result.size() * sizeof(T)) {
    throw std::invalid_argument("values: tensor " + tensor.name + " has other bytes than its shape says");
  }
  if (!result.empty()) std::memcpy(result.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

template std::vector<float> values<float>(const Tensor&);
template std::vector<double> values<double>(const Tensor&);
template std::vector<int8_t> values<int8_t>(const Tensor&);
template std::vector<uint8_t> values<uint8_t>(const Tensor&);
template std::vector<int16_t> values<int16_t>(const Tensor&);
template std::vector<int32_t> values<int32_t>(const Tensor&);
template std::vector<int64_t> values<int64_t>(const Tensor&);

}  // namespace regard::io
