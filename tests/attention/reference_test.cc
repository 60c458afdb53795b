#include "regard/attention/reference.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/attention/golden_case.h"
#include "tests/support/compare.h"

namespace regard::attention {
namespace {

using regard::testing::Bound;
using regard::testing::GoldenCase;
using regard::testing::is_close;

constexpr Bound kFloat64{1e-10, 1e-10};

class ReferenceGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(ReferenceGolden, ForwardEqualsTheOutsideReference) {
  const GoldenCase c(GetParam());
  const Reference ours = reference(c.spec, c.operands);
  EXPECT_TRUE(is_close(ours.out, c.expected("O"), kFloat64));
  EXPECT_TRUE(is_close(ours.lse, c.expected("LSE"), kFloat64));
  EXPECT_TRUE(is_close(ours.entropy, c.expected("entropy"), kFloat64));
  EXPECT_TRUE(is_close(ours.column_sums, c.expected("column_sum"), kFloat64));
  if (c.file.has("P")) {
    EXPECT_TRUE(is_close(ours.weights, c.expected("P"), kFloat64));
  }
}

// dBias is summed over the axes that bias repeats along, dSink over the batch.
std::vector<double> sum_to(const std::vector<double>& full, const kernel::Extents& size,
                           const kernel::Extents& wanted) {
  std::vector<double> sum(wanted[0] * wanted[1] * wanted[2] * wanted[3], 0.0);
  int64_t at = 0;
  for (int64_t b = 0; b < size[0]; ++b) {
    for (int64_t h = 0; h < size[1]; ++h) {
      for (int64_t i = 0; i < size[2]; ++i) {
        for (int64_t j = 0; j < size[3]; ++j) {
          const auto on = [&](int axis, int64_t index) { return wanted[axis] == 1 ? 0 : index; };
          sum[((on(0, b) * wanted[1] + on(1, h)) * wanted[2] + on(2, i)) * wanted[3] + on(3, j)] +=
              full[at++];
        }
      }
    }
  }
  return sum;
}

TEST_P(ReferenceGolden, GradientsEqualTheOutsideReference) {
  const GoldenCase c(GetParam());
  const ReferenceGradients ours = reference_backward(c.spec, c.operands, c.expected("dO"));
  EXPECT_TRUE(is_close(ours.q, c.expected("dQ"), kFloat64));
  EXPECT_TRUE(is_close(ours.k, c.expected("dK"), kFloat64));
  EXPECT_TRUE(is_close(ours.v, c.expected("dV"), kFloat64));
  const kernel::Extents& q = c.operands.q.size;
  if (c.file.has("dBias")) {
    const std::vector<double> bias = sum_to(ours.bias, {q[0], q[1], q[2], c.operands.k.size[2]},
                                            testing::four_axes(c.file["dBias"].shape));
    EXPECT_TRUE(is_close(bias, c.expected("dBias"), kFloat64));
  }
  if (c.file.has("dSink")) {
    const std::vector<double> sinks = sum_to(ours.sinks, {q[0], q[1], 1, 1}, {1, q[1], 1, 1});
    EXPECT_TRUE(is_close(sinks, c.expected("dSink"), kFloat64));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, ReferenceGolden, ::testing::ValuesIn(testing::golden_names()),
                         [](const auto& info) { return info.param; });

TEST(ReferenceGoldenFiles, AllSixtyNineAreThere) {
  EXPECT_EQ(testing::golden_names().size(), 69U);
}

}  // namespace
}  // namespace regard::attention
