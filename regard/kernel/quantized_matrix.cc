#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/kernel/quantized.h"

namespace regard::kernel {
namespace {

constexpr int64_t kPanelRows = QuantizedLayout::kPanelRows;
constexpr int64_t kBlock = QuantizedLayout::kBlock;
constexpr int64_t kQuads = kBlock / 4;

constexpr std::array<QuantizedFormat, 7> kFormats = {{{4, 32, false},
                                                      {4, 32, true},
                                                      {5, 32, false},
                                                      {5, 32, true},
                                                      {6, 16, false},
                                                      {7, 32, false},
                                                      {8, 32, false}}};

void store_half(float value, uint8_t* to) {
  const f16 half = to_f16(value);
  std::memcpy(to, &half, sizeof half);
}

float load_half(const uint8_t* from) {
  f16 half;
  std::memcpy(&half, from, sizeof half);
  return to_float(half);
}

// A power of two that brings the largest of some numbers to [2^14, 2^15): the upper end of what halfs hold.
float normaliser(float largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 1.0F;
  int exponent = 0;
  std::frexp(largest, &exponent);
  return std::ldexp(1.0F, std::clamp(15 - exponent, -120, 120));
}

}  // namespace

void QuantizedMatrix::Release::operator()(uint8_t* at) const {
  ::operator delete (at, std::align_val_t{64});
}

QuantizedMatrix::QuantizedMatrix(QuantizedFormat format, int64_t rows, int64_t columns)
    : layout_{format, rows, columns} {
  if (std::find(kFormats.begin(), kFormats.end(), format) == kFormats.end()) {
    throw std::invalid_argument("QuantizedMatrix: " + std::to_string(format.bits) + " bits in groups of " +
                                std::to_string(format.group) +
                                (format.has_minimum ? " with a minimum" : " without a minimum") +
                                "; known are 4 and 5 bits in groups of 32 with and without, 6 bits in groups "
                                "of 16, 7 and 8 in groups of 32");
  }
  if (rows < 1 || columns < 1) {
    throw std::invalid_argument("QuantizedMatrix: " + std::to_string(rows) + " rows and " +
                                std::to_string(columns) + " columns; both must be at least 1");
  }
  const auto bytes = static_cast<size_t>(layout_.panels() * layout_.panel_bytes());
  panels_.reset(static_cast<uint8_t*>(::operator new (bytes, std::align_val_t{64})));
  const auto padded = static_cast<size_t>(layout_.panels() * kPanelRows);
  row_scales_ = std::make_unique<float[]>(padded);
  // Only what set_row() leaves: the rows and columns beyond the matrix. Memory is first touched by who fills
  // it.
  if (layout_.rows % kPanelRows != 0) {
    std::memset(panels_.get() + (layout_.panels() - 1) * layout_.panel_bytes(), 0,
                static_cast<size_t>(layout_.panel_bytes()));
  }
}

int64_t QuantizedMatrix::bytes() const {
  return layout_.panels() * (layout_.panel_bytes() + kPanelRows * static_cast<int64_t>(sizeof(float)));
}

void QuantizedMatrix::set_row(int64_t row, const uint8_t* values, const float* scales, const float* minima) {
  const QuantizedFormat& format = layout_.format;
  const int64_t groups = (layout_.columns + format.group - 1) / format.group;
  float largest = 0;
  bool finite = true;
  for (int64_t g = 0; g < groups; ++g) {
    for (const float x : {scales[g], format.has_minimum ? minima[g] : 0.0F}) {
      finite = finite && std::isfinite(x);
      largest = std::max(largest, std::abs(x));
    }
  }
  const float factor = finite ? normaliser(largest) : 1.0F;
  row_scales_[static_cast<size_t>(row)] = 1.0F / factor;

  const int64_t in_panel = row % kPanelRows;
  uint8_t* block = panels_.get() + row / kPanelRows * layout_.panel_bytes();
  for (int64_t b = 0; b < layout_.blocks(); ++b, block += layout_.block_bytes()) {
    uint8_t q[kBlock];
    const int64_t count = std::min(kBlock, layout_.columns - b * kBlock);
    std::memcpy(q, values + b * kBlock, static_cast<size_t>(count));
    std::fill(q + count, q + kBlock, static_cast<uint8_t>(format.offset()));
    uint8_t* to = block + in_panel * 4;
    if (format.bits == 4) {
      for (int64_t quad = 0; quad < kQuads / 2; ++quad)
        for (int64_t i = 0; i < 4; ++i)
          to[quad * kPanelRows * 4 + i] =
              static_cast<uint8_t>((q[quad * 4 + i] & 15) | q[quad * 4 + i + kBlock / 2] << 4);
    } else {
      for (int64_t quad = 0; quad < kQuads; ++quad) std::memcpy(to + quad * kPanelRows * 4, q + quad * 4, 4);
    }
    uint8_t* numbers = block + layout_.value_bytes() + in_panel * 2;
    for (int64_t g = 0; g < layout_.groups(); ++g) {
      const int64_t group = b * layout_.groups() + g;
      store_half(group < groups ? scales[group] * factor : 0.0F, numbers);
      numbers += kPanelRows * 2;
      if (!format.has_minimum) continue;
      store_half(group < groups ? minima[group] * factor : 0.0F, numbers);
      numbers += kPanelRows * 2;
    }
  }
}

void QuantizedMatrix::round_row(int64_t row, const float* weights) {
  const QuantizedFormat& format = layout_.format;
  if (format.has_minimum)
    throw std::invalid_argument("round_row: the format has a minimum; it must have none");
  const int64_t groups = (layout_.columns + format.group - 1) / format.group;
  const auto limit = static_cast<float>(format.offset() - 1);
  std::vector<uint8_t> values(static_cast<size_t>(layout_.columns));
  std::vector<float> scales(static_cast<size_t>(groups));
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * format.group;
    const int64_t end = std::min(layout_.columns, begin + format.group);
    float largest = 0;
    bool finite = true;
    for (int64_t c = begin; c < end; ++c) {
      finite = finite && std::isfinite(weights[c]);
      largest = std::max(largest, std::abs(weights[c]));
    }
    const float scale = largest / limit;
    scales[static_cast<size_t>(g)] = finite ? scale : std::numeric_limits<float>::quiet_NaN();
    for (int64_t c = begin; c < end; ++c) {
      const float q =
          finite && scale > 0 ? std::clamp(std::nearbyint(weights[c] / scale), -limit, limit) : 0.0F;
      values[static_cast<size_t>(c)] = static_cast<uint8_t>(static_cast<int>(q) + format.offset());
    }
  }
  set_row(row, values.data(), scales.data(), nullptr);
}

void QuantizedMatrix::get_row(int64_t row, float* weights) const {
  const QuantizedFormat& format = layout_.format;
  const uint8_t* block = panel(row / kPanelRows);
  const int64_t in_panel = row % kPanelRows;
  const float row_scale = row_scales_[static_cast<size_t>(row)];
  for (int64_t c = 0; c < layout_.columns; ++c) {
    const int64_t in_block = c % kBlock;
    const uint8_t* at = block + c / kBlock * layout_.block_bytes();
    const uint8_t* numbers = at + layout_.value_bytes() +
                             in_block / format.group * kPanelRows * 2 * (format.has_minimum ? 2 : 1) +
                             in_panel * 2;
    int64_t quad = in_block / 4;
    int q = 0;
    if (format.bits == 4) {
      const int byte = at[quad % (kQuads / 2) * kPanelRows * 4 + in_panel * 4 + in_block % 4];
      q = quad < kQuads / 2 ? byte & 15 : byte >> 4;
    } else {
      q = at[quad * kPanelRows * 4 + in_panel * 4 + in_block % 4];
    }
    const float scale = load_half(numbers) * row_scale;
    const float minimum = format.has_minimum ? load_half(numbers + kPanelRows * 2) * row_scale : 0.0F;
    weights[c] = scale * static_cast<float>(q - format.offset()) + minimum;
  }
}

}  // namespace regard::kernel
