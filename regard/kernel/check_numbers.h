#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "regard/kernel/tile_mask.h"

// What the self-checks are made of: small problems, and their answers in float64.
namespace regard::kernel::check {

// The same on every machine, in [low, high).
inline std::vector<float> numbers(int64_t count, uint32_t seed, float low = -1.0F, float high = 1.0F) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    seed = seed * 1664525U + 1013904223U;
    value = low + (high - low) * static_cast<float>(seed >> 8) * 0x1p-24F;
  }
  return values;
}

inline std::vector<double> wide(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

// Within rounding of the largest of what is wanted; false for a NaN.
inline bool is_close(const std::vector<float>& got, const std::vector<double>& want) {
  double top = 1e-3;
  for (const double x : want) top = std::max(top, std::abs(x));
  for (size_t i = 0; i < want.size(); ++i)
    if (!(std::abs(static_cast<double>(got[i]) - want[i]) <= 3e-5 * top)) return false;
  return got.size() == want.size();
}

inline double dot(const std::vector<double>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * static_cast<double>(b[i]);
  return sum;
}

// Whether `grad` is that of loss(x), a double of doubles: along each of some random directions, by central
// differences.
template <class Grad, class Loss>
bool is_gradient(const Grad& grad, const std::vector<float>& x, const Loss& loss) {
  constexpr double kStep = 1e-4;
  for (uint32_t seed = 100; seed < 103; ++seed) {
    const std::vector<float> direction = numbers(static_cast<int64_t>(x.size()), seed);
    std::vector<double> ahead = wide(x), behind = ahead;
    double slope = 0, most = 1e-3;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto step = static_cast<double>(direction[i]);
      ahead[i] += kStep * step;
      behind[i] -= kStep * step;
      slope += static_cast<double>(grad[i]) * step;
      most = std::max(most, std::abs(static_cast<double>(grad[i])));
    }
    if (!(std::abs((loss(ahead) - loss(behind)) / (2 * kStep) - slope) <= 1e-4 * most)) return false;
  }
  return true;
}

// Scratch of kernels.
class Memory {
 public:
  explicit Memory(size_t size)
      : data_(static_cast<std::byte*>(::operator new (size, std::align_val_t{64}))), size_(size) {}
  std::span<std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Release {
    void operator()(std::byte* at) const { ::operator delete (at, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Release> data_;
  size_t size_;
};

// Row i sees the keys up to i + ahead, of `keys`.
struct SeenBehind {
  int64_t keys, ahead;

  int64_t end(int64_t row) const { return std::clamp<int64_t>(row + ahead + 1, 0, keys); }
  Span next_span(int64_t, int64_t, int64_t row, int64_t rows, int64_t from) const {
    if (from < end(row)) return {from, end(row), true};
    return {from, std::max(end(row + rows - 1), from), false};
  }
  void bits(int64_t, int64_t, int64_t row, int64_t rows, int64_t key, int64_t columns,
            uint64_t* words) const {
    for (int64_t r = 0; r < rows; ++r) {
      words[r] = 0;
      for (int64_t c = 0; c < columns; ++c)
        if (key + c < end(row + r)) words[r] |= uint64_t{1} << c;
    }
  }
};

}  // namespace regard::kernel::check
