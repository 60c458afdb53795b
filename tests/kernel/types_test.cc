#include "regard/kernel/types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace regard::kernel {
namespace {

TEST(Types, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const f16 x{static_cast<uint16_t>(bits)};
    const float wide = to_float(x);
    if (std::isnan(wide))
      EXPECT_TRUE(std::isnan(to_float(to_f16(wide))));
    else
      EXPECT_EQ(to_f16(wide).bits, x.bits) << wide;
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double mantissa = bits & 1023;
    const double magnitude = exponent == 31  ? (mantissa == 0 ? INFINITY : NAN)
                             : exponent == 0 ? mantissa * 0x1p-24
                                             : (1 + mantissa / 1024) * std::exp2(exponent - 15);
    if (!std::isnan(magnitude)) {
      EXPECT_EQ(wide, (bits & 0x8000) != 0 ? -magnitude : magnitude);
    }
  }
}

TEST(Types, EveryBrainFloatSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bf16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(x)))
      EXPECT_TRUE(std::isnan(to_float(to_bf16(to_float(x)))));
    else
      EXPECT_EQ(to_bf16(to_float(x)).bits, x.bits);
  }
}

// Between any two neighbours: the nearer one, and in the middle the even one.
TEST(Types, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float low = to_float(f16{static_cast<uint16_t>(bits)});
    const float high = bits + 1 == 0x7C00 ? 65536.0F : to_float(f16{static_cast<uint16_t>(bits + 1)});
    const float middle = (low + high) / 2;
    EXPECT_EQ(to_f16(middle).bits, (bits & 1) == 0 ? bits : bits + 1);
    EXPECT_EQ(to_f16(std::nextafter(middle, 0.0F)).bits, bits);
    EXPECT_EQ(to_f16(std::nextafter(middle, 1e9F)).bits, bits + 1);
    EXPECT_EQ(to_f16(-middle).bits, to_f16(middle).bits | 0x8000);
  }
  for (uint32_t bits = 0; bits < 0x7F7F; ++bits) {
    const uint32_t middle = bits << 16 | 0x8000;
    EXPECT_EQ(to_bf16(std::bit_cast<float>(middle)).bits, (bits & 1) == 0 ? bits : bits + 1);
    EXPECT_EQ(to_bf16(std::bit_cast<float>(middle - 1)).bits, bits);
    EXPECT_EQ(to_bf16(std::bit_cast<float>(middle + 1)).bits, bits + 1);
  }
}

TEST(Types, LimitsAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_float(to_f16(1e6F)), infinity);
  EXPECT_EQ(to_float(to_f16(-infinity)), -infinity);
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::max())), infinity);
  EXPECT_TRUE(std::isnan(to_float(to_f16(std::bit_cast<float>(0x7F800001U)))));
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7F800001U)))));
  EXPECT_EQ(to_f16(1e-10F).bits, 0);
  EXPECT_TRUE(std::signbit(to_float(to_f16(-1e-10F))));
}

}  // namespace
}  // namespace regard::kernel
