#include "regard/io/dequantize.h"

#include <cstring>
#include <stdexcept>

namespace regard::io {
namespace {

float load_half(const uint8_t* in) {
  uint16_t bits;
  std::memcpy(&bits, in, sizeof(bits));
  return half_to_float(bits);
}

// The quants of a block in a place of their own: bytes may alias anything, also the floats that are written,
// and the compiler would use no vectors (four times slower for q4_1).
template <int count>
struct Quants {
  uint8_t at[count];
  explicit Quants(const uint8_t* in) { std::memcpy(at, in, count); }
  int operator[](int j) const { return at[j]; }
};

// All functions: one block from `in` to `out`. The types of 32 elements keep element j in the low and element
// j + 16 in the high four bits of byte j.

// f16 scale, 16 bytes.
void q4_0(const uint8_t* in, float* out) {
  const float scale = load_half(in);
  const Quants<16> quants(in + 2);
  for (int j = 0; j < 16; ++j) out[j] = static_cast<float>((quants[j] & 15) - 8) * scale;
  for (int j = 0; j < 16; ++j) out[j + 16] = static_cast<float>((quants[j] >> 4) - 8) * scale;
}

// f16 scale, f16 minimum, 16 bytes.
void q4_1(const uint8_t* in, float* out) {
  const float scale = load_half(in);
  const float minimum = load_half(in + 2);
  const Quants<16> quants(in + 4);
  for (int j = 0; j < 16; ++j) out[j] = static_cast<float>(quants[j] & 15) * scale + minimum;
  for (int j = 0; j < 16; ++j) out[j + 16] = static_cast<float>(quants[j] >> 4) * scale + minimum;
}

// The fifth bits of 32 elements, element j in bit j.
uint32_t load_fifth_bits(const uint8_t* in) {
  uint32_t bits;
  std::memcpy(&bits, in, sizeof(bits));
  return bits;
}

// f16 scale, 32 fifth bits, 16 bytes.
void q5_0(const uint8_t* in, float* out) {
  const float scale = load_half(in);
  const uint32_t fifth = load_fifth_bits(in + 2);
  const uint8_t* quants = in + 6;
  for (int j = 0; j < 16; ++j) {
    const auto low = static_cast<int>((quants[j] & 15) | ((fifth >> j) & 1) << 4);
    const auto high = static_cast<int>((quants[j] >> 4) | ((fifth >> (j + 16)) & 1) << 4);
    out[j] = static_cast<float>(low - 16) * scale;
    out[j + 16] = static_cast<float>(high - 16) * scale;
  }
}

// f16 scale, f16 minimum, 32 fifth bits, 16 bytes.
void q5_1(const uint8_t* in, float* out) {
  const float scale = load_half(in);
  const float minimum = load_half(in + 2);
  const uint32_t fifth = load_fifth_bits(in + 4);
  const uint8_t* quants = in + 8;
  for (int j = 0; j < 16; ++j) {
    const auto low = static_cast<int>((quants[j] & 15) | ((fifth >> j) & 1) << 4);
    const auto high = static_cast<int>((quants[j] >> 4) | ((fifth >> (j + 16)) & 1) << 4);
    out[j] = static_cast<float>(low) * scale + minimum;
    out[j + 16] = static_cast<float>(high) * scale + minimum;
  }
}

// f16 scale, 32 signed bytes.
void q8_0(const uint8_t* in, float* out) {
  const float scale = load_half(in);
  const Quants<32> quants(in + 2);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(static_cast<int8_t>(quants[j])) * scale;
}

// f16 scale, f16 minimum, 12 bytes of group scales, 128 bytes: 32 bytes serve two groups, low and high
// nibbles.
void q4_k(const uint8_t* in, float* out) {
  const float scale = load_half(in);
  const float minimum = load_half(in + 2);
  const uint8_t* quants = in + 16;
  for (int group = 0; group < 8; ++group) {
    const auto [s, m] = unpack_scale(in + 4, group);
    const float group_scale = scale * static_cast<float>(s);
    const float group_minimum = minimum * static_cast<float>(m);
    const int shift = group % 2 * 4;
    const uint8_t* bytes = quants + group / 2 * 32;
    for (int j = 0; j < 32; ++j) {
      out[group * 32 + j] = group_scale * static_cast<float>((bytes[j] >> shift) & 15) - group_minimum;
    }
  }
}

// As q4_k with 32 bytes of fifth bits before the quants: bit g of byte j belongs to element j of group g.
void q5_k(const uint8_t* in, float* out) {
  const float scale = load_half(in);
  const float minimum = load_half(in + 2);
  const uint8_t* fifth = in + 16;
  const uint8_t* quants = in + 48;
  for (int group = 0; group < 8; ++group) {
    const auto [s, m] = unpack_scale(in + 4, group);
    const float group_scale = scale * static_cast<float>(s);
    const float group_minimum = minimum * static_cast<float>(m);
    const int shift = group % 2 * 4;
    const uint8_t* bytes = quants + group / 2 * 32;
    for (int j = 0; j < 32; ++j) {
      const int quant = ((bytes[j] >> shift) & 15) | ((fifth[j] >> group) & 1) << 4;
      out[group * 32 + j] = group_scale * static_cast<float>(quant) - group_minimum;
    }
  }
}

// 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales of 16 elements each, f16 scale.
// Each half of the block (128 elements) is four quarters of 32: quarters 0 and 1 are the low, 2 and 3 the
// high nibbles of the same 64 bytes; bit pair q of upper byte j belongs to element j of quarter q.
void q6_k(const uint8_t* in, float* out) {
  const float scale = load_half(in + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = in + half * 64;
    const uint8_t* upper = in + 128 + half * 32;
    const uint8_t* scales = in + 192 + half * 8;
    for (int quarter = 0; quarter < 4; ++quarter) {
      const uint8_t* bytes = low + quarter % 2 * 32;
      const int shift = quarter / 2 * 4;
      for (int j = 0; j < 32; ++j) {
        const int quant = ((bytes[j] >> shift) & 15) | ((upper[j] >> (2 * quarter)) & 3) << 4;
        const auto group_scale = static_cast<int8_t>(scales[quarter * 2 + j / 16]);
        out[half * 128 + quarter * 32 + j] =
            scale * static_cast<float>(group_scale) * static_cast<float>(quant - 32);
      }
    }
  }
}

template <void (*block)(const uint8_t*, float*), Type type>
void each(const std::byte* in, int64_t blocks, float* out) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(in);
  for (int64_t i = 0; i < blocks; ++i) block(bytes + i * block_bytes(type), out + i * block_elements(type));
}

}  // namespace

ScaleAndMinimum unpack_scale(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4,
          (packed[group + 4] >> 4) | (packed[group] >> 6) << 4};
}

void dequantize_blocks(Type type, const std::byte* in, int64_t blocks, float* out) {
  switch (type) {
    case Type::q4_0:
      return each<q4_0, Type::q4_0>(in, blocks, out);
    case Type::q4_1:
      return each<q4_1, Type::q4_1>(in, blocks, out);
    case Type::q5_0:
      return each<q5_0, Type::q5_0>(in, blocks, out);
    case Type::q5_1:
      return each<q5_1, Type::q5_1>(in, blocks, out);
    case Type::q8_0:
      return each<q8_0, Type::q8_0>(in, blocks, out);
    case Type::q4_k:
      return each<q4_k, Type::q4_k>(in, blocks, out);
    case Type::q5_k:
      return each<q5_k, Type::q5_k>(in, blocks, out);
    case Type::q6_k:
      return each<q6_k, Type::q6_k>(in, blocks, out);
    default:
      throw std::invalid_argument("dequantize_blocks: " + std::string(type_name(type)) + " has no blocks");
  }
}

}  // namespace regard::io
