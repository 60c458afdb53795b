#include "regard/io/block_groups.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "regard/io/dequantize.h"

namespace regard::io {
namespace {

// Where one block goes.
struct Groups {
  uint8_t* values;
  float* scales;
  float* minima;
};

float load_half(const uint8_t* in) {
  uint16_t bits;
  std::memcpy(&bits, in, sizeof(bits));
  return half_to_float(bits);
}

// 16 bytes: element j in the low and j + 16 in the high four bits of byte j.
void low_bits(const uint8_t* in, uint8_t* values) {
  for (int j = 0; j < 16; ++j) {
    values[j] = in[j] & 15;
    values[j + 16] = in[j] >> 4;
  }
}

void fifth_bits(const uint8_t* in, uint8_t* values) {
  uint32_t bits;
  std::memcpy(&bits, in, sizeof(bits));
  for (int j = 0; j < 32; ++j) values[j] = static_cast<uint8_t>(values[j] | ((bits >> j) & 1) << 4);
}

// The types of 32 elements: a scale, a minimum if they have one, fifth bits if they have them, 16 bytes.
template <bool kMinimum, bool kFifth>
void simple(const uint8_t* in, const Groups& to) {
  to.scales[0] = load_half(in);
  in += 2;
  if constexpr (kMinimum) {
    to.minima[0] = load_half(in);
    in += 2;
  }
  low_bits(in + (kFifth ? 4 : 0), to.values);
  if constexpr (kFifth) fifth_bits(in, to.values);
}

void q8_0(const uint8_t* in, const Groups& to) {
  to.scales[0] = load_half(in);
  for (int j = 0; j < 32; ++j) to.values[j] = in[2 + j] ^ 0x80U;  // signed to unsigned
}

// Scales and minima as dequantize.cc describes them; the fifth bits, if any, are 32 bytes before the quants.
template <bool kFifth>
void k_block(const uint8_t* in, const Groups& to) {
  const float scale = load_half(in);
  const float minimum = load_half(in + 2);
  const uint8_t* fifth = in + 16;
  const uint8_t* quants = in + (kFifth ? 48 : 16);
  for (int group = 0; group < 8; ++group) {
    const auto [s, m] = unpack_scale(in + 4, group);
    to.scales[group] = scale * static_cast<float>(s);
    to.minima[group] = -(minimum * static_cast<float>(m));
    for (int j = 0; j < 32; ++j) {
      int quant = (quants[group / 2 * 32 + j] >> (group % 2 * 4)) & 15;
      if constexpr (kFifth) quant |= ((fifth[j] >> group) & 1) << 4;
      to.values[group * 32 + j] = static_cast<uint8_t>(quant);
    }
  }
}

void q6_k(const uint8_t* in, const Groups& to) {
  const float scale = load_half(in + 208);
  for (int group = 0; group < 16; ++group)
    to.scales[group] = scale * static_cast<float>(static_cast<int8_t>(in[192 + group]));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i / 32 % 4, j = i % 32;
    const int low = in[half * 64 + quarter % 2 * 32 + j] >> (quarter / 2 * 4);
    const int upper = in[128 + half * 32 + j] >> (2 * quarter);
    to.values[i] = static_cast<uint8_t>((low & 15) | (upper & 3) << 4);
  }
}

using ReadBlock = void (*)(const uint8_t*, const Groups&);

struct Known {
  BlockForm form;
  ReadBlock read;
};

std::optional<Known> known(Type type) {
  switch (type) {
    case Type::q4_0:
      return Known{{4, 32, false}, simple<false, false>};
    case Type::q4_1:
      return Known{{4, 32, true}, simple<true, false>};
    case Type::q5_0:
      return Known{{5, 32, false}, simple<false, true>};
    case Type::q5_1:
      return Known{{5, 32, true}, simple<true, true>};
    case Type::q8_0:
      return Known{{8, 32, false}, q8_0};
    case Type::q4_k:
      return Known{{4, 32, true}, k_block<false>};
    case Type::q5_k:
      return Known{{5, 32, true}, k_block<true>};
    case Type::q6_k:
      return Known{{6, 16, false}, q6_k};
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<BlockForm> block_form(Type type) {
  const std::optional<Known> found = known(type);
  return found ? std::optional(found->form) : std::nullopt;
}

void read_groups(const Tensor& tensor, int64_t row, uint8_t* values, float* scales, float* minima) {
  const std::optional<Known> found = known(tensor.type);
  if (!found) throw std::invalid_argument("read_groups: tensor " + tensor.name + " has no blocks");
  const int64_t bytes = tensor.row_bytes();
  if (row < 0 || row >= tensor.rows() || static_cast<int64_t>(tensor.bytes.size()) < (row + 1) * bytes) {
    throw std::invalid_argument("read_groups: row " + std::to_string(row) + " of tensor " + tensor.name +
                                " with " + std::to_string(tensor.rows()) + " rows");
  }
  const auto* in = reinterpret_cast<const uint8_t*>(tensor.bytes.data() + row * bytes);
  const int64_t elements = block_elements(tensor.type);
  const int64_t groups = elements / found->form.group;
  for (int64_t b = 0; b < tensor.row_elements() / elements; ++b, in += block_bytes(tensor.type)) {
    found->read(in, {values + b * elements, scales + b * groups, minima + b * groups});
  }
}

}  // namespace regard::io
