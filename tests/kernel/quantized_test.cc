#include "regard/kernel/quantized.h"

#include <gtest/gtest.h>

#include <cmath>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "../attention/target_test.h"

namespace regard::kernel {
namespace {

using regard::testing::EachTarget;

const std::vector<QuantizedFormat> kFormats = {{4, 32, false}, {4, 32, true},  {5, 32, false}, {5, 32, true},
                                               {6, 16, false}, {7, 32, false}, {8, 32, false}};

std::string name_of(const QuantizedFormat& format) {
  return std::to_string(format.bits) + " bits" + (format.has_minimum ? " with a minimum" : "");
}

QuantizedMatrix random_matrix(const QuantizedFormat& format, int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  QuantizedMatrix matrix(format, rows, columns);
  const int64_t groups = (columns + format.group - 1) / format.group;
  std::vector<uint8_t> values(static_cast<size_t>(columns));
  std::vector<float> scales(static_cast<size_t>(groups)), minima(static_cast<size_t>(groups));
  for (int64_t r = 0; r < rows; ++r) {
    for (uint8_t& q : values) q = static_cast<uint8_t>(random() % (1U << format.bits));
    for (float& s : scales) s = normal(random) * 0.01F;
    for (float& m : minima) m = normal(random) * 0.1F;
    matrix.set_row(r, values.data(), scales.data(), minima.data());
  }
  return matrix;
}

std::vector<float> random_inputs(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = normal(random) * (random() % 16 == 0 ? 20.0F : 1.0F);
  return x;
}

struct Workspace {
  explicit Workspace(size_t bytes)
      : at(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}))) {}
  ~Workspace() { ::operator delete (at, std::align_val_t{64}); }
  std::byte* at;
};

void run(const QuantizedProduct& product, Parallel& parallel) {
  const Workspace workspace(quantized_workspace(product, parallel.workers()));
  quantized_product(product, workspace.at, parallel);
}

struct Call {
  QuantizedMatrix weights;
  std::vector<float> x, out;
  QuantizedProduct product;

  Call(const QuantizedFormat& format, int64_t rows, int64_t outputs, int64_t columns)
      : weights(random_matrix(format, outputs, columns, 1)),
        x(random_inputs(rows * columns, 2)),
        out(static_cast<size_t>(rows * outputs)) {
    product.weights = &weights;
    product.x = x.data();
    product.x_stride = columns;
    product.rows = rows;
    product.out = out.data();
    product.out_stride = outputs;
  }
  Call(const Call&) = delete;
  void run(Parallel& parallel) { kernel::run(product, parallel); }
};

class Quantized : public EachTarget {
 protected:
  Serial serial_;
};

// Integers are summed exactly; what is left are the roundings of float32 between blocks.
TEST_P(Quantized, EqualsThePlainProductUpToFloat32Sums) {
  const std::vector<std::array<int64_t, 3>> sizes = {{1, 1, 1},     {1, 16, 32},  {1, 17, 33},  {2, 15, 31},
                                                     {3, 33, 64},   {4, 16, 100}, {5, 70, 576}, {7, 65, 1056},
                                                     {129, 19, 97}, {1, 300, 544}};
  for (const QuantizedFormat& format : kFormats) {
    for (const auto& [rows, outputs, columns] : sizes) {
      Call call(format, rows, outputs, columns);
      call.run(serial_);
      std::vector<double> want(call.out.size());
      quantized_product_plain(call.product, want.data());
      std::vector<float> w(static_cast<size_t>(columns));
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t r = 0; r < outputs; ++r) {
          const auto at = static_cast<size_t>(i * outputs + r);
          // Unsigned weights and their correction cancel: their magnitude is that of the range, not of w.
          double magnitude = 0;
          const float range = static_cast<float>(1 << format.bits) * 0.05F + 0.5F;
          for (int64_t c = 0; c < columns; ++c)
            magnitude += std::abs(call.x[static_cast<size_t>(i * columns + c)]) * range;
          ASSERT_NEAR(call.out[at], want[at], 0x1p-23 * magnitude)
              << name_of(format) << ", " << rows << " x " << outputs << " x " << columns << " at " << i
              << ", " << r;
        }
    }
  }
}

// The whole error beside the exact product: half a step of each input.
TEST_P(Quantized, ErrsByAtMostHalfAStepOfEachInput) {
  constexpr int64_t kRows = 3, kOutputs = 40, kColumns = 320;
  for (const QuantizedFormat& format : kFormats) {
    Call call(format, kRows, kOutputs, kColumns);
    call.run(serial_);
    std::vector<float> w(kColumns);
    for (int64_t r = 0; r < kOutputs; ++r) {
      call.weights.get_row(r, w.data());
      for (int64_t i = 0; i < kRows; ++i) {
        const float* x = call.x.data() + i * kColumns;
        double exact = 0, bound = 0;
        for (int64_t c = 0; c < kColumns; ++c) {
          float largest = 0;
          for (int64_t k = c / 32 * 32; k < c / 32 * 32 + 32; ++k)
            largest = std::max(largest, std::abs(x[k]));
          exact += static_cast<double>(w[static_cast<size_t>(c)]) * x[c];
          bound += std::abs(w[static_cast<size_t>(c)]) * largest / 254.0;
        }
        EXPECT_NEAR(call.out[static_cast<size_t>(i * kOutputs + r)], exact, bound * 1.0001 + 1e-3)
            << name_of(format);
      }
    }
  }
}

// All numbers as large as they come: no sum of 16 bits overflows or saturates.
TEST_P(Quantized, TheLargestNumbersFitTheIntegerSums) {
  constexpr int64_t kColumns = 128;
  for (const QuantizedFormat& format : kFormats) {
    for (const float sign : {1.0F, -1.0F}) {
      for (const int64_t rows : {1, 6}) {
        Call call(format, rows, 16, kColumns);
        const std::vector<uint8_t> values(kColumns, static_cast<uint8_t>((1 << format.bits) - 1));
        const std::vector<float> ones(kColumns, 1.0F);
        for (int64_t r = 0; r < 16; ++r) call.weights.set_row(r, values.data(), ones.data(), ones.data());
        std::fill(call.x.begin(), call.x.end(), 127.0F * sign);
        call.run(serial_);
        const int weight = (1 << format.bits) - 1 - format.offset() + (format.has_minimum ? 1 : 0);
        for (const float got : call.out)
          EXPECT_EQ(got, sign * 127.0F * static_cast<float>(kColumns * weight)) << name_of(format);
      }
    }
  }
}

TEST_P(Quantized, ARowsBitsDependNeitherOnOtherRowsNorOnThreads) {
  constexpr int64_t kRows = 134, kOutputs = 83, kColumns = 608;
  for (const QuantizedFormat& format : kFormats) {
    Call call(format, kRows, kOutputs, kColumns);
    call.run(serial_);
    const std::vector<float> want = call.out;
    for (const int threads : {2, 3, 5}) {
      ThreadPool pool(threads);
      std::fill(call.out.begin(), call.out.end(), NAN);
      call.run(pool);
      EXPECT_EQ(call.out, want) << name_of(format) << ", " << threads << " threads";
    }
    for (const int64_t row : {0, 5, 129, 133}) {
      QuantizedProduct one = call.product;
      one.x += row * kColumns;
      one.rows = 1;
      std::vector<float> out(kOutputs);
      one.out = out.data();
      ThreadPool pool(2);
      run(one, pool);
      EXPECT_EQ(out, std::vector<float>(want.begin() + row * kOutputs, want.begin() + (row + 1) * kOutputs))
          << name_of(format);
    }
  }
}

TEST_P(Quantized, AddsABiasAndTouchesNothingElse) {
  constexpr int64_t kRows = 5, kOutputs = 21, kColumns = 64, kStride = 30;
  for (const int64_t rows : {int64_t{1}, kRows}) {
    Call call({4, 32, true}, rows, kOutputs, kColumns);
    call.run(serial_);
    const std::vector<float> bias = random_inputs(kOutputs, 5);
    std::vector<float> out(static_cast<size_t>(rows * kStride), 3.0F);
    QuantizedProduct product = call.product;
    product.out = out.data();
    product.out_stride = kStride;
    product.bias = bias.data();
    run(product, serial_);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t c = 0; c < kStride; ++c) {
        const float got = out[static_cast<size_t>(i * kStride + c)];
        if (c >= kOutputs)
          EXPECT_EQ(got, 3.0F);
        else
          EXPECT_EQ(got, call.out[static_cast<size_t>(i * kOutputs + c)] + bias[static_cast<size_t>(c)]);
      }
  }
}

TEST_P(Quantized, TheEpilogueIsTheGeluOfTheSums) {
  for (const int64_t rows : {1, 5}) {
    Call call({6, 16, false}, rows, 21, 64);
    call.run(serial_);
    const std::vector<float> sums = call.out;
    call.product.epilogue = Epilogue::gelu;
    call.run(serial_);
    for (size_t i = 0; i < sums.size(); ++i) {
      const double want = 0.5 * sums[i] * std::erfc(-static_cast<double>(sums[i]) * std::sqrt(0.5));
      EXPECT_NEAR(call.out[i], want, 4e-7 * std::abs(sums[i])) << sums[i];
    }
  }
}

TEST_P(Quantized, AnInputThatIsNotFiniteSpoilsItsRowOnly) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const QuantizedFormat& format : kFormats) {
      Call call(format, 6, 20, 70);
      call.run(serial_);
      const std::vector<float> want = call.out;
      call.x[2 * 70 + 68] = bad;
      call.run(serial_);
      for (size_t i = 0; i < want.size(); ++i) {
        if (i / 20 == 2)
          EXPECT_TRUE(std::isnan(call.out[i]));
        else
          EXPECT_EQ(call.out[i], want[i]);
      }
    }
  }
}

TEST_P(Quantized, ZerosAndTheSmallestNumbersGiveNothing) {
  Call call({4, 32, true}, 2, 16, 64);
  std::fill(call.x.begin(), call.x.begin() + 64, 0.0F);
  std::fill(call.x.begin() + 64, call.x.end(), 1e-44F);
  call.run(serial_);
  for (const float got : call.out) EXPECT_EQ(got, 0.0F);
}

INSTANTIATE_TEST_SUITE_P(Targets, Quantized, ::testing::ValuesIn(runnable_targets()));

TEST(QuantizedMatrix, GivesBackWhatWasSet) {
  for (const QuantizedFormat& format : kFormats) {
    constexpr int64_t kRows = 18, kColumns = 75;
    QuantizedMatrix matrix(format, kRows, kColumns);
    const int64_t groups = (kColumns + format.group - 1) / format.group;
    // Halfs, from the smallest to the largest: they must come back as they are.
    const std::vector<float> halfs = {0x1p-14F, 65504.0F, -0.333251953125F, 0.0F, 1.0F};
    std::vector<uint8_t> values(kColumns);
    std::vector<float> scales(static_cast<size_t>(groups)), minima(scales), got(kColumns);
    const auto fill = [&](int64_t r) {
      for (int64_t c = 0; c < kColumns; ++c)
        values[static_cast<size_t>(c)] = static_cast<uint8_t>((r * 13 + c * 7) % (1 << format.bits));
      for (int64_t g = 0; g < groups; ++g) {
        scales[static_cast<size_t>(g)] = halfs[static_cast<size_t>(r + g) % halfs.size()];
        minima[static_cast<size_t>(g)] = halfs[static_cast<size_t>(r + 2 * g) % halfs.size()];
      }
    };
    for (int64_t r = kRows - 1; r >= 0; --r) {
      fill(r);
      matrix.set_row(r, values.data(), scales.data(), minima.data());
    }
    for (int64_t r = 0; r < kRows; ++r) {
      fill(r);
      matrix.get_row(r, got.data());
      for (int64_t c = 0; c < kColumns; ++c) {
        const auto g = static_cast<size_t>(c / format.group);
        const float want = scales[g] * static_cast<float>(values[static_cast<size_t>(c)] - format.offset()) +
                           (format.has_minimum ? minima[g] : 0.0F);
        EXPECT_EQ(got[static_cast<size_t>(c)], want) << name_of(format) << " row " << r << " column " << c;
      }
    }
  }
}

TEST(QuantizedMatrix, RoundsWeightsToHalfAStep) {
  for (const QuantizedFormat& format :
       {kInt8Format, QuantizedFormat{8, 32, false}, QuantizedFormat{6, 16, false}}) {
    constexpr int64_t kColumns = 83;
    QuantizedMatrix matrix(format, 1, kColumns);
    std::vector<float> weights = random_inputs(kColumns, 9), got(kColumns);
    matrix.round_row(0, weights.data());
    matrix.get_row(0, got.data());
    for (int64_t c = 0; c < kColumns; ++c) {
      float largest = 0;
      for (int64_t k = c / format.group * format.group;
           k < std::min(kColumns, (c / format.group + 1) * format.group); ++k)
        largest = std::max(largest, std::abs(weights[static_cast<size_t>(k)]));
      const float step = largest / static_cast<float>(format.offset() - 1);
      // Half a step, and the scale's rounding to 11 bits.
      EXPECT_NEAR(got[static_cast<size_t>(c)], weights[static_cast<size_t>(c)],
                  step * 0.5F + largest * 0x1p-11F);
    }
    weights[40] = NAN;
    matrix.round_row(0, weights.data());
    matrix.get_row(0, got.data());
    EXPECT_TRUE(std::isnan(got[40]));
    EXPECT_FALSE(std::isnan(got[0]));
  }
}

TEST(QuantizedMatrix, RefusesUnknownFormatsAndSizes) {
  EXPECT_THROW(QuantizedMatrix({3, 32, false}, 1, 1), std::invalid_argument);
  EXPECT_THROW(QuantizedMatrix({4, 16, false}, 1, 1), std::invalid_argument);
  EXPECT_THROW(QuantizedMatrix({8, 32, true}, 1, 1), std::invalid_argument);
  EXPECT_THROW(QuantizedMatrix({4, 32, true}, 0, 1), std::invalid_argument);
  EXPECT_THROW(QuantizedMatrix({4, 32, true}, 1, 0), std::invalid_argument);
}

}  // namespace
}  // namespace regard::kernel
