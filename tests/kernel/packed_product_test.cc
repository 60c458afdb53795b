#include "regard/kernel/packed_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "../attention/target_test.h"

namespace regard::kernel {
namespace {

using regard::testing::EachTarget;

std::vector<float> normal_numbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// A product whose rows lie further apart than they are long; what lies between must stay as it is.
struct Call {
  static constexpr int64_t kGap = 3;
  static constexpr float kUntouched = -77.0F;

  int64_t inputs, rows, columns;
  std::vector<float> weights, x, bias, out;
  PackedMatrix matrix;
  PackedProduct product;

  Call(int64_t inputs, int64_t rows, int64_t columns, Parallel& parallel)
      : inputs(inputs),
        rows(rows),
        columns(columns),
        weights(normal_numbers(rows * (columns + kGap), 1)),
        x(normal_numbers(inputs * (columns + kGap), 2)),
        bias(normal_numbers(rows, 3)),
        out(static_cast<size_t>(inputs * (rows + kGap)), kUntouched),
        matrix(weights.data(), rows, columns, columns + kGap, parallel) {
    product = {&matrix,    x.data(),    columns + kGap, inputs,
               out.data(), rows + kGap, bias.data(),    Epilogue::none};
  }
  Call(const Call&) = delete;

  float at(int64_t i, int64_t r) const { return out[static_cast<size_t>(i * (rows + kGap) + r)]; }
  double exact(int64_t i, int64_t r, double* magnitude) const {
    double sum = product.bias == nullptr ? 0.0 : bias[static_cast<size_t>(r)];
    *magnitude = std::abs(sum);
    for (int64_t c = 0; c < columns; ++c) {
      const double term = static_cast<double>(x[static_cast<size_t>(i * (columns + kGap) + c)]) *
                          weights[static_cast<size_t>(r * (columns + kGap) + c)];
      sum += term;
      *magnitude += std::abs(term);
    }
    return sum;
  }
};

double gelu(double x) {
  return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
}

class PackedProductTest : public EachTarget {
 protected:
  Serial serial_;
};

TEST_P(PackedProductTest, EqualsTheExactProductUpToFloat32Sums) {
  const std::vector<std::array<int64_t, 3>> sizes = {
      {1, 1, 1},    {1, 16, 32},   {2, 17, 33},  {3, 31, 128}, {4, 33, 129},  {5, 48, 384},
      {6, 15, 385}, {7, 200, 769}, {13, 65, 50}, {23, 16, 17}, {121, 40, 96}, {241, 193, 64}};
  for (const auto& [inputs, rows, columns] : sizes) {
    for (const bool with_bias : {true, false}) {
      Call call(inputs, rows, columns, serial_);
      if (!with_bias) call.product.bias = nullptr;
      packed_product(call.product, serial_);
      for (int64_t i = 0; i < inputs; ++i) {
        for (int64_t r = 0; r < rows; ++r) {
          double magnitude = 0;
          const double want = call.exact(i, r, &magnitude);
          ASSERT_NEAR(call.at(i, r), want, 0x1.8p-22 * magnitude)
              << inputs << " x " << rows << " x " << columns << " at " << i << ", " << r;
        }
        for (int64_t r = rows; r < rows + Call::kGap; ++r) ASSERT_EQ(call.at(i, r), Call::kUntouched);
      }
    }
  }
}

TEST_P(PackedProductTest, GeluIsExactFarFromZeroToo) {
  // Weights of 1 and inputs of one feature: out = gelu(x).
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x;
  for (int i = -1400; i <= 1400; ++i) x.push_back(static_cast<float>(i) * 0.01F);
  x.insert(x.end(), {-1e30F, 1e30F, -infinity, infinity, 1e-30F, -1e-30F, -0.0F});
  const float one = 1.0F;
  const PackedMatrix matrix(&one, 1, 1, 1, serial_);
  std::vector<float> out(x.size());
  packed_product(
      {&matrix, x.data(), 1, static_cast<int64_t>(x.size()), out.data(), 1, nullptr, Epilogue::gelu},
      serial_);
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isinf(x[i])) {
      EXPECT_EQ(out[i], x[i] > 0 ? infinity : 0.0F) << x[i];
    } else {
      const double want = gelu(x[i]);
      // exp(-x^2 / 2) keeps fewer digits the larger its argument.
      const double square = std::min(static_cast<double>(x[i]) * x[i], 200.0);
      const double bound = (4e-7 + (x[i] < 0 ? 1e-7 * square : 0)) * std::abs(want) + 1e-37;
      EXPECT_NEAR(out[i], want, bound) << x[i];
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float answer = 0;
  packed_product({&matrix, &nan, 1, 1, &answer, 1, nullptr, Epilogue::gelu}, serial_);
  EXPECT_TRUE(std::isnan(answer));
}

TEST_P(PackedProductTest, ARowIsTheSameInAnyCompanyAndOnAnyThreads) {
  constexpr int64_t kInputs = 131, kRows = 70, kColumns = 450;
  Call all(kInputs, kRows, kColumns, serial_);
  packed_product(all.product, serial_);
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    Call again(kInputs, kRows, kColumns, pool);
    packed_product(again.product, pool);
    EXPECT_EQ(again.out, all.out) << threads << " threads";
  }
  for (const int64_t row : {0, 5, 6, 119, 120, 130}) {
    Call alone(kInputs, kRows, kColumns, serial_);
    alone.product.x += row * alone.product.x_stride;
    alone.product.out += row * alone.product.out_stride;
    alone.product.rows = 1;
    packed_product(alone.product, serial_);
    for (int64_t r = 0; r < kRows; ++r) ASSERT_EQ(alone.at(row, r), all.at(row, r)) << "row " << row;
  }
}

TEST_P(PackedProductTest, NoRowsAreNothingToDo) {
  Call call(1, 3, 4, serial_);
  call.product.rows = 0;
  packed_product(call.product, serial_);
  EXPECT_EQ(call.at(0, 0), Call::kUntouched);
}

INSTANTIATE_TEST_SUITE_P(Targets, PackedProductTest, ::testing::ValuesIn(runnable_targets()));

TEST(PackedMatrix, RefusesSizesBelowOne) {
  Serial serial;
  const float one = 1;
  EXPECT_THROW(PackedMatrix(&one, 0, 1, 1, serial), std::invalid_argument);
  EXPECT_THROW(PackedMatrix(&one, 1, 0, 1, serial), std::invalid_argument);
}

TEST(PackedProductSelfCheck, AcceptsTheTargetInUse) {
  EXPECT_TRUE(packed_self_check());
}

}  // namespace
}  // namespace regard::kernel
