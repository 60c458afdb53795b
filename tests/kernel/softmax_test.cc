#include "regard/kernel/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "regard/kernel/targets.h"
#include "tests/support/compare.h"
#include "tests/support/safetensors.h"

namespace regard::kernel {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr SoftmaxWay kWays[] = {SoftmaxWay::naive, SoftmaxWay::safe, SoftmaxWay::online};

class Softmax : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { select_target(GetParam()); }
  void TearDown() override { select_target(""); }
};

std::vector<float> normal(int64_t count, float amplitude, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> draw(0, amplitude);
  std::vector<float> x(count);
  for (float& value : x) value = draw(random);
  return x;
}

std::vector<double> plain(const std::vector<float>& x, int64_t columns, bool log) {
  std::vector<double> y(x.size());
  for (size_t at = 0; at < x.size(); at += static_cast<size_t>(columns)) {
    double top = -INFINITY;
    double sum = 0;
    for (int64_t j = 0; j < columns; ++j) top = std::max(top, static_cast<double>(x[at + j]));
    for (int64_t j = 0; j < columns; ++j) sum += std::exp(x[at + j] - top);
    for (int64_t j = 0; j < columns; ++j)
      y[at + j] = log ? x[at + j] - top - std::log(sum) : std::exp(x[at + j] - top) / sum;
  }
  return y;
}

std::vector<float> run(SoftmaxWay way, bool log, const std::vector<float>& x, int64_t columns) {
  std::vector<float> out(x.size());
  Serial serial;
  softmax(way, log, {static_cast<int64_t>(x.size()) / columns, columns, columns}, x.data(), out.data(),
          serial);
  return out;
}

TEST_P(Softmax, EveryWayEqualsItsFormula) {
  for (const int64_t columns : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 1000, 5003}) {
    const std::vector<float> x = normal(3 * columns, 3, static_cast<uint64_t>(columns));
    for (const SoftmaxWay way : kWays) {
      EXPECT_TRUE(testing::is_close(run(way, false, x, columns), plain(x, columns, false),
                                    testing::float32_bound(10), 1e-9));
      EXPECT_TRUE(testing::is_close(run(way, true, x, columns), plain(x, columns, true),
                                    testing::float32_bound(4), 1));
    }
  }
}

// The Softmax cases of the ONNX standard; along another axis rows are gathered here.
TEST_P(Softmax, OnnxCases) {
  for (const std::string name :
       {"axis_0", "axis_1", "axis_2", "default_axis", "example", "large_number", "negative_axis"}) {
    const testing::SafeTensors file(std::string(REGARD_GOLDEN_DIR) + "/onnx-layers/softmax_" + name +
                                    ".safetensors");
    const testing::Array& in = file["in.x"];
    const nlohmann::json attributes = nlohmann::json::parse(file.metadata()["attributes"].get<std::string>());
    const auto axes = static_cast<int64_t>(in.shape.size());
    const int64_t axis = (attributes.value("axis", int64_t{-1}) + axes) % axes;
    int64_t inner = 1;
    for (int64_t i = axis + 1; i < axes; ++i) inner *= in.shape[i];
    const int64_t columns = in.shape[axis];
    const std::vector<float> x = in.to<float>();
    const std::vector<double> expected = file["out.y"].to<double>();
    const auto place = [&](int64_t row, int64_t column) {
      return row / inner * inner * columns + column * inner + row % inner;
    };
    std::vector<float> rows;
    std::vector<double> wanted;
    for (int64_t row = 0; row < in.count() / columns; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        rows.push_back(x[place(row, column)]);
        wanted.push_back(expected[place(row, column)]);
      }
    for (const SoftmaxWay way : {SoftmaxWay::safe, SoftmaxWay::online})
      EXPECT_TRUE(testing::is_close(run(way, false, rows, columns), wanted, {5e-7, 5e-7})) << name;
  }
}

TEST_P(Softmax, LargeNumbersAreFiniteUnlessTheWayIsNaive) {
  const std::vector<float> x = {1e4F, 1e4F - 1, -1e4F, 0, 3, 1e4F - 30};
  for (const SoftmaxWay way : {SoftmaxWay::safe, SoftmaxWay::online}) {
    EXPECT_TRUE(testing::is_close(run(way, false, x, 6), plain(x, 6, false), {1e-6, 1e-6}));
  }
  EXPECT_TRUE(std::isnan(run(SoftmaxWay::naive, false, x, 6)[0]));  // infinity / infinity
}

TEST_P(Softmax, AShiftOfAllChangesNothing) {
  const std::vector<float> x = {0.5F, -1, 2, 0.25F, 3};
  std::vector<float> shifted = x;
  for (float& value : shifted) value += 1024;
  for (const SoftmaxWay way : {SoftmaxWay::safe, SoftmaxWay::online}) {
    EXPECT_EQ(run(way, false, shifted, 5), run(way, false, x, 5));
  }
}

// ln softmax(x) of (1000, 0) is -1000; the logarithm of the softmax would be -infinity.
TEST_P(Softmax, LogSoftmaxKeepsWhatTheSoftmaxLoses) {
  EXPECT_EQ(run(SoftmaxWay::safe, true, {1000, 0}, 2), (std::vector<float>{0, -1000}));
  EXPECT_EQ(run(SoftmaxWay::online, true, {1000, 0}, 2), (std::vector<float>{0, -1000}));
  EXPECT_EQ(run(SoftmaxWay::safe, false, {1000, 0}, 2)[1], 0.0F);
}

TEST_P(Softmax, ARowOfNothingIsZeroAndANaNMakesItsRowNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> x(3 * 20, 1.0F);
  for (int64_t j = 0; j < 20; ++j) x[j] = -kInfinity;
  x[20 + 13] = nan;
  for (const SoftmaxWay way : kWays) {
    const std::vector<float> y = run(way, false, x, 20);
    const std::vector<float> z = run(way, true, x, 20);
    EXPECT_EQ(y[4], 0.0F);
    EXPECT_EQ(z[4], -kInfinity);
    EXPECT_TRUE(std::isnan(y[20]) && std::isnan(y[39]) && std::isnan(z[21]));
    EXPECT_NEAR(y[40], 0.05F, 1e-7);
  }
}

TEST_P(Softmax, GradientsEqualTheirFormulas) {
  for (const int64_t columns : {1, 7, 16, 33, 2500}) {
    const std::vector<float> x = normal(2 * columns, 2, 5);
    const std::vector<float> grad = normal(2 * columns, 1, 6);
    for (const bool log : {false, true}) {
      const std::vector<float> y = run(SoftmaxWay::safe, log, x, columns);
      std::vector<double> expected(x.size());
      const std::vector<double> p = plain(x, columns, false);
      for (size_t at = 0; at < x.size(); at += static_cast<size_t>(columns)) {
        double sum = 0;
        for (int64_t j = 0; j < columns; ++j) sum += (log ? 1 : p[at + j]) * grad[at + j];
        for (int64_t j = 0; j < columns; ++j)
          expected[at + j] = log ? grad[at + j] - p[at + j] * sum : p[at + j] * (grad[at + j] - sum);
      }
      std::vector<float> actual(x.size());
      Serial serial;
      softmax_backward(log, {2, columns, columns}, y.data(), grad.data(), actual.data(), serial);
      EXPECT_TRUE(testing::is_close(actual, expected, {2e-6, 1e-5}, 1e-3)) << columns << log;
    }
  }
}

TEST_P(Softmax, RowsApartAndInPlaceAndOnAnyNumberOfThreads) {
  const int64_t rows = 70;
  const int64_t columns = 701;
  const int64_t stride = 710;
  const std::vector<float> x = normal(rows * stride, 2, 7);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    std::vector<float> y = x;
    softmax(SoftmaxWay::online, false, {rows, columns, stride}, y.data(), y.data(), pool);
    results.push_back(y);
    EXPECT_EQ(y, results[0]);
  }
  for (int64_t i = 0; i < rows; ++i) EXPECT_EQ(results[0][i * stride + columns], x[i * stride + columns]);
}

TEST_P(Softmax, CountsTheBytesThatItsPassesGoOver) {
  const std::pair<SoftmaxWay, int64_t> reads[] = {
      {SoftmaxWay::naive, 2}, {SoftmaxWay::safe, 3}, {SoftmaxWay::online, 2}};
  for (const int64_t columns : {1, 10, 512, 701}) {
    const int64_t rows = 70;
    std::vector<float> x(static_cast<size_t>(rows * columns), 1.0F);
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      for (const auto& [way, count] : reads) {
        const SoftmaxTraffic traffic =
            softmax(way, count == 3, {rows, columns, columns}, x.data(), x.data(), pool);
        EXPECT_EQ(traffic.bytes_read, count * rows * columns * 4) << columns;
        EXPECT_EQ(traffic.bytes_written, rows * columns * 4) << columns;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Softmax, ::testing::ValuesIn(runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::kernel
