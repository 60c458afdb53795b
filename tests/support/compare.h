#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

// Error bounds of docs/semantics.md, in one place.
namespace regard::testing {

struct Bound {
  double rms;  // sqrt(mean error^2 / mean reference^2)
  double max;  // largest error / largest |reference|
};

// float32 kernels, S = the largest visible |logit|: one rounding each of a few steps, and what a rounding of
// the logit costs after exp. Any number of features: kernels sum products in parts of 128.
inline Bound float32_bound(double largest_logit) {
  const double rms = (8 + 1.5 * largest_logit) * std::ldexp(1.0, -24);
  return {rms, 4 * rms};
}

inline double largest_finite(const std::vector<double>& values) {
  double top = 0;
  for (const double value : values) {
    if (std::isfinite(value)) top = std::max(top, std::abs(value));
  }
  return top;
}

// Where the reference is not finite, the value must be of the same kind. floor: a reference below it counts
// as that much.
template <class T>
::testing::AssertionResult is_close(const std::vector<T>& actual, const std::vector<double>& expected,
                                    Bound bound, double floor = 1e-3) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure() << actual.size() << " values, expected " << expected.size();
  }
  double errors = 0;
  double squares = 0;
  double worst = 0;
  size_t worst_at = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = static_cast<double>(actual[i]);
    const double e = expected[i];
    if (!std::isfinite(e) || !std::isfinite(a)) {
      if ((std::isnan(a) && std::isnan(e)) || a == e) continue;
      return ::testing::AssertionFailure() << "value " << i << " is " << a << ", expected " << e;
    }
    errors += (a - e) * (a - e);
    squares += e * e;
    if (std::abs(a - e) > worst) {
      worst = std::abs(a - e);
      worst_at = i;
    }
  }
  const double top = std::max(largest_finite(expected), floor);
  const double mean = std::max(squares, floor * floor * static_cast<double>(actual.size()));
  if (worst > bound.max * top || errors > bound.rms * bound.rms * mean) {
    return ::testing::AssertionFailure()
           << "value " << worst_at << " is " << static_cast<double>(actual[worst_at]) << ", expected "
           << expected[worst_at] << ": " << worst / top << " of the largest (allowed " << bound.max
           << "), rms relative " << std::sqrt(errors / mean) << " (allowed " << bound.rms << ")";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace regard::testing
