#include "regard/io/tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "regard/io/block_groups.h"
#include "regard/io/error.h"
#include "regard/io/gguf.h"
#include "regard/io/safetensors.h"
#include "tests/io/files.h"

namespace regard::io {
namespace {

// The value of half-precision bits by the definition, without the tricks of the fast conversion.
double half_by_definition(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double mantissa = bits & 1023;
  const double magnitude = exponent == 31  ? (mantissa == 0 ? INFINITY : NAN)
                           : exponent == 0 ? std::ldexp(mantissa, -24)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, AllPatternsConvertExactlyAndBack) {
  for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    const float value = half_to_float(bits);
    const double expected = half_by_definition(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << pattern;
      ASSERT_TRUE(std::isnan(half_to_float(float_to_half(value)))) << pattern;
      continue;
    }
    ASSERT_EQ(value, expected) << pattern;
    ASSERT_EQ(std::signbit(value), std::signbit(expected)) << pattern;
    ASSERT_EQ(float_to_half(value), bits);
  }
}

TEST(Half, RoundsToNearestWithTiesToEven) {
  for (uint32_t pattern = 0; pattern < 0x7bff; ++pattern) {
    const auto lower = static_cast<uint16_t>(pattern);
    const auto upper = static_cast<uint16_t>(pattern + 1);
    const float middle = (half_to_float(lower) + half_to_float(upper)) / 2;
    ASSERT_EQ(float_to_half(middle), pattern % 2 == 0 ? lower : upper) << pattern;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), lower) << pattern;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e9f)), upper) << pattern;
  }
  EXPECT_EQ(float_to_half(65519.99f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(-1e30f), 0xfc00);
  EXPECT_EQ(float_to_half(1e-30f), 0);
}

TEST(BlockGroups, FormulaOfEveryBlockTypeGivesWhatDequantizeGives) {
  const Gguf blocks = Gguf::open(golden("blocks.gguf"));
  int types = 0;
  for (const Tensor& tensor : blocks.tensors()) {
    const auto form = block_form(tensor.type);
    ASSERT_EQ(form.has_value(), is_quantized(tensor.type));
    if (!form) continue;
    ++types;
    const auto columns = static_cast<size_t>(tensor.row_elements());
    std::vector<uint8_t> values(columns);
    std::vector<float> scales(columns / static_cast<size_t>(form->group)), minima(scales.size()),
        want(columns);
    for (int64_t row = 0; row < tensor.rows(); ++row) {
      read_groups(tensor, row, values.data(), scales.data(), minima.data());
      dequantize(tensor, row, row + 1, want);
      for (size_t c = 0; c < columns; ++c) {
        const size_t g = c / static_cast<size_t>(form->group);
        ASSERT_LT(values[c], 1 << form->bits);
        const int offset = form->has_minimum ? 0 : 1 << (form->bits - 1);
        const float got =
            scales[g] * static_cast<float>(values[c] - offset) + (form->has_minimum ? minima[g] : 0.0F);
        ASSERT_EQ(got, want[c]) << type_name(tensor.type) << " row " << row << " column " << c;
      }
    }
    EXPECT_THROW(read_groups(tensor, tensor.rows(), values.data(), scales.data(), minima.data()),
                 std::invalid_argument);
  }
  EXPECT_GE(types, 8);
}

TEST(Dequantize, EveryTypeAgreesWithTheGgufPackageBitForBit) {
  const Gguf blocks = Gguf::open(golden("blocks.gguf"));
  const Safetensors expected = Safetensors::open(golden("blocks.safetensors"));
  EXPECT_EQ(blocks.tensors().size(), 11u);
  ASSERT_EQ(blocks.tensors().size(), expected.tensors().size());
  for (const Tensor& tensor : blocks.tensors()) {
    const Tensor& reference = expected.require(tensor.name);
    ASSERT_EQ(tensor.shape, reference.shape) << tensor.name;
    EXPECT_EQ(type_name(tensor.type), tensor.name);
    const std::vector<float> got = to_floats(tensor);
    ASSERT_EQ(got.size() * sizeof(float), reference.bytes.size());
    EXPECT_EQ(std::memcmp(got.data(), reference.bytes.data(), reference.bytes.size()), 0) << tensor.name;
  }
}

TEST(Dequantize, RowsAreThoseOfTheWhole) {
  const Gguf blocks = Gguf::open(golden("blocks.gguf"));
  for (const Tensor& tensor : blocks.tensors()) {
    const std::vector<float> whole = to_floats(tensor);
    const int64_t row = tensor.row_elements();
    std::vector<float> part(static_cast<size_t>(row));
    dequantize(tensor, 1, 2, part);
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + row, part.size() * sizeof(float)), 0) << tensor.name;
  }
}

TEST(Dequantize, IntegersAndBoolsBecomeTheirValues) {
  const Safetensors types = Safetensors::open(golden("types.safetensors"));
  EXPECT_EQ(to_floats(types.require("i8")), (std::vector<float>{-3, -2, -1, 0, 1, 2}));
  EXPECT_EQ(to_floats(types.require("u8")), (std::vector<float>{250, 251, 252, 253, 254, 255}));
  EXPECT_EQ(to_floats(types.require("i16")), (std::vector<float>{-30000, 30000}));
  EXPECT_EQ(to_floats(types.require("i32")), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(to_floats(types.require("i64")), (std::vector<float>{0x1p40f, -1}));
  EXPECT_EQ(to_floats(types.require("boolean")), (std::vector<float>{1, 0}));
  EXPECT_EQ(to_floats(types.require("f64")), to_floats(types.require("f32")));
}

TEST(Dequantize, RefusesRowsOutsideAndOutputsOfAnotherSize) {
  const std::vector<float> data(6, 1.0f);
  const Tensor tensor = view("x", {2, 3}, data);
  std::vector<float> out(3);
  EXPECT_THROW(dequantize(tensor, 2, 3, out), std::invalid_argument);
  EXPECT_THROW(dequantize(tensor, -1, 0, out), std::invalid_argument);
  EXPECT_THROW(dequantize(tensor, 1, 0, out), std::invalid_argument);
  EXPECT_THROW(dequantize(tensor, 0, 2, out), std::invalid_argument);
  Tensor cut = tensor;
  cut.bytes = cut.bytes.first(20);
  EXPECT_THROW(dequantize(cut, 1, 2, out), std::invalid_argument);
}

TEST(Values, RefusesAnotherType) {
  const std::vector<float> data(2, 1.0f);
  const Tensor tensor = view("x", {2}, data);
  EXPECT_EQ(values<float>(tensor), data);
  EXPECT_EQ(message_of<Error>([&] { values<int64_t>(tensor); }), "tensor \"x\" holds f32, i64 was expected");
}

TEST(CountElements, FindsEveryOverflow) {
  int64_t count = -1;
  EXPECT_TRUE(count_elements(std::vector<int64_t>{}, count));
  EXPECT_EQ(count, 1);
  EXPECT_TRUE(count_elements(std::vector<int64_t>{3, 0, 5}, count));
  EXPECT_EQ(count, 0);
  EXPECT_FALSE(count_elements(std::vector<int64_t>{int64_t{1} << 32, int64_t{1} << 32}, count));
  EXPECT_FALSE(count_elements(std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40, 0}, count));
  EXPECT_FALSE(count_elements(std::vector<int64_t>{-1}, count));
  EXPECT_FALSE(count_bytes(Type::f64, std::vector<int64_t>{int64_t{1} << 60}, count));
  EXPECT_FALSE(count_bytes(Type::q4_0, std::vector<int64_t>{2, 33}, count));
  EXPECT_TRUE(count_bytes(Type::q4_0, std::vector<int64_t>{2, 64}, count));
  EXPECT_EQ(count, 72);
}

}  // namespace
}  // namespace regard::io
