#include <gtest/gtest.h>

#include "regard/attention/attention.h"
#include "regard/attention/reference.h"
#include "tests/attention/random_call.h"
#include "tests/attention/target_test.h"
#include "tests/support/compare.h"

namespace regard::attention {
namespace {

using kernel::DType;
using testing::is_close;
using testing::Problem;
using testing::Tensor;

class Property : public testing::EachTarget {};

TEST_P(Property, RandomCallsStayWithinTheErrorBoundOfTheReference) {
  for (const uint64_t seed : testing::property_seeds(500)) {
    Problem problem = testing::random_call(seed);
    const Operands operands = problem.operands();
    SCOPED_TRACE(testing::describe(seed, problem));
    const Reference plain = reference(problem.spec, operands);
    const testing::Bound bound = testing::float32_bound(testing::largest_finite(plain.logits));
    attention(problem.spec, operands);
    ASSERT_TRUE(is_close(problem.out.values(), plain.out, bound));
    ASSERT_TRUE(is_close(problem.lse.values(), plain.lse, bound, 1.0));
  }
}

// A result in 16 bits: at most twice the error of rounding the right one once.
TEST_P(Property, ResultsInSixteenBitsAreRoundedOnce) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Problem problem({.B = 1, .Hq = 4, .Hkv = 2, .Lq = 50, .Lk = 130, .Dk = 64, .Dv = 64}, 9, dtype);
    Operands operands = problem.operands();
    Tensor out(dtype, operands.out.size);
    operands.out = out.view();
    attention(problem.spec, operands);
    const Reference plain = reference(problem.spec, operands);
    Tensor rounded(dtype, operands.out.size);
    size_t at = 0;
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t i = 0; i < 50; ++i) {
        for (int64_t d = 0; d < 64; ++d) rounded.set(0, h, i, d, static_cast<float>(plain.out[at++]));
      }
    }
    const auto rms = [&](const std::vector<float>& values) {
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        sum += (values[i] - plain.out[i]) * (values[i] - plain.out[i]);
      }
      return std::sqrt(sum);
    };
    EXPECT_LE(rms(out.values()), 2 * rms(rounded.values())) << kernel::name(dtype);
    EXPECT_GT(rms(rounded.values()), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Property, ::testing::ValuesIn(kernel::runnable_targets()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace regard::attention
