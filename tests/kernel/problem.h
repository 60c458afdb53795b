#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "regard/kernel/forward.h"
#include "regard/kernel/targets.h"

// A problem with its data, and the plain float64 loop that says what the right answer is.
namespace regard::kernel::testing {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

// Owns the elements of a strided view inside a larger buffer whose other elements are `around`.
template <class T>
struct Tensor {
  Extents size{};
  Extents stride{};
  int64_t origin = 0;
  std::vector<T> buffer;

  View<T> view() { return {buffer.data() + origin, size, stride}; }
  View<const T> view() const { return {buffer.data() + origin, size, stride}; }
  T& operator()(int64_t b, int64_t h, int64_t i, int64_t f) { return view()(b, h, i, f); }
};

template <class T>
T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) return x;
  if constexpr (std::is_same_v<T, bf16>) return to_bf16(x);
  if constexpr (std::is_same_v<T, f16>) return to_f16(x);
}

enum class Layout { contiguous, position_major, features_apart, backwards };

// All elements `fill`; every layout has a margin of elements that no one may read or write.
template <class T>
Tensor<T> make_tensor(const Extents& size, Layout layout, T fill) {
  Tensor<T> t;
  t.size = size;
  const int64_t margin = 67;
  int64_t total = 1;
  for (const int64_t n : size) total *= n;
  switch (layout) {
    case Layout::contiguous:
      t.stride = contiguous_strides(size);
      break;
    case Layout::position_major:  // [batch, position, head, feature] as most models have it, rows 3 elements
                                  // apart
      t.stride = {size[2] * size[1] * (size[3] + 3), size[3] + 3, size[1] * (size[3] + 3), 1};
      total = size[0] * size[1] * size[2] * (size[3] + 3);
      break;
    case Layout::features_apart:
      t.stride = {size[1] * size[2] * size[3] * 3, size[2] * 3, 3, size[1] * size[2] * 3};
      total *= 3;
      break;
    case Layout::backwards:
      t.stride = {size[1] * size[2] * size[3], size[2] * size[3], -size[3], -1};
      break;
  }
  t.buffer.assign(static_cast<size_t>(total + 2 * margin), fill);
  t.origin = margin;
  if (layout == Layout::backwards && total > 0) t.origin += size[2] * size[3] - 1;
  return t;
}

template <class T, class F>
void each(Tensor<T>& t, F&& f) {
  for (int64_t b = 0; b < t.size[0]; ++b)
    for (int64_t h = 0; h < t.size[1]; ++h)
      for (int64_t i = 0; i < t.size[2]; ++i)
        for (int64_t k = 0; k < t.size[3]; ++k) f(t(b, h, i, k), b, h, i, k);
}

// A mask by predicate, lowered by brute force.
struct PredicateMask {
  using Sees = std::function<bool(int64_t batch, int64_t head, int64_t row, int64_t key)>;
  Sees sees;
  int64_t keys = 0;

  TileMask lowered() const {
    TileMask mask;
    mask.self = this;
    mask.next_span = [](const void* self, int64_t b, int64_t h, int64_t row, int64_t rows, int64_t from) {
      const auto& me = *static_cast<const PredicateMask*>(self);
      const auto count = [&](int64_t key) {
        int64_t n = 0;
        for (int64_t r = 0; r < rows; ++r) n += me.sees(b, h, row + r, key) ? 1 : 0;
        return n;
      };
      Span span{from, from, true};
      while (span.begin < me.keys && count(span.begin) == 0) ++span.begin;
      span.end = span.begin;
      if (span.begin == me.keys) return span;
      span.full = count(span.begin) == rows;
      for (int64_t n = count(span.end); n > 0 && (n == rows) == span.full;
           n = span.end < me.keys ? count(span.end) : 0)
        ++span.end;
      return span;
    };
    mask.bits = [](const void* self, int64_t b, int64_t h, int64_t row, int64_t rows, int64_t key,
                   int64_t columns, uint64_t* words) {
      const auto& me = *static_cast<const PredicateMask*>(self);
      for (int64_t r = 0; r < rows; ++r) {
        words[r] = 0;
        for (int64_t c = 0; c < columns; ++c)
          if (key + c < me.keys && me.sees(b, h, row + r, key + c)) words[r] |= uint64_t{1} << c;
      }
    };
    return mask;
  }
};

inline double logit(const Forward& p, int64_t b, int64_t h, int64_t i, int64_t j, double dot) {
  double s = dot * p.scale;
  if (p.softcap > 0) s = p.softcap * std::tanh(s / p.softcap);
  if (p.bias) s += p.bias(b, h, i, j);
  if (p.slopes) s -= p.slopes(b, h, 0, 0) * std::abs(static_cast<double>(i + p.alibi_offset - j));
  return s;
}

struct Expected {
  std::vector<double> out, lse, weights;  // [B, Hq, Lq, Dv], [B, Hq, Lq], [B, Hq, Lq, Lk]
  double largest_logit = 0;
};

template <class T>
Expected expect(const Forward& p) {
  const auto q = p.q.as<const T>();
  const auto k = p.k.as<const T>();
  const auto v = p.v.as<const T>();
  const int64_t group = k.size[1] > 0 ? q.size[1] / k.size[1] : 1;
  Expected e;
  for (int64_t b = 0; b < q.size[0]; ++b)
    for (int64_t h = 0; h < q.size[1]; ++h)
      for (int64_t i = 0; i < q.size[2]; ++i) {
        std::vector<double> s(static_cast<size_t>(k.size[2]), -INFINITY);
        double top = -INFINITY;
        bool nan = false;
        for (int64_t j = 0; j < k.size[2]; ++j) {
          if (p.mask) {
            uint64_t word = 0;
            p.mask.bits(p.mask.self, b, h, i, 1, j, 1, &word);
            if (word == 0) continue;
          }
          double dot = 0;
          for (int64_t d = 0; d < q.size[3]; ++d)
            dot += static_cast<double>(to_float(q(b, h, i, d))) * to_float(k(b, h / group, j, d));
          double& x = s[static_cast<size_t>(j)];
          x = logit(p, b, h, i, j, dot);
          nan = nan || std::isnan(x);
          if (x > top) top = x;
          if (std::isfinite(x)) e.largest_logit = std::max(e.largest_logit, std::abs(x));
        }
        const double sink = p.sinks ? p.sinks(b, h, 0, 0) : -INFINITY;
        top = std::max(top, sink);
        double sum = sink > -INFINITY ? std::exp(sink - top) : 0.0;
        for (double& x : s) {
          x = x == -INFINITY ? 0.0 : std::exp(x - top);
          sum += x;
        }
        e.lse.push_back(nan ? NAN : sum > 0 ? top + std::log(sum) : -INFINITY);
        for (double& x : s) x = sum > 0 || nan ? x / sum : 0.0;
        for (int64_t d = 0; d < v.size[3]; ++d) {
          double o = 0;
          for (int64_t j = 0; j < k.size[2]; ++j) {
            // A weight of exactly 0 stands for a masked pair here.
            if (s[static_cast<size_t>(j)] == 0.0) continue;
            o += s[static_cast<size_t>(j)] * to_float(v(b, h / group, j, d));
          }
          e.out.push_back(o);
        }
        e.weights.insert(e.weights.end(), s.begin(), s.end());
      }
  return e;
}

// Scratch whose end is guarded: what lies behind must not change.
struct Workspace {
  explicit Workspace(size_t bytes) : size(bytes), memory(bytes + 128, std::byte{0xFF}) {}
  std::span<std::byte> span() {
    auto address = reinterpret_cast<uintptr_t>(memory.data());
    return {memory.data() + (64 - address % 64) % 64, size};
  }
  bool intact() {
    const auto used = span();
    for (const std::byte* p = used.data() + used.size(); p != memory.data() + memory.size(); ++p)
      if (*p != std::byte{0xFF}) return false;
    return true;
  }
  size_t size;
  std::vector<std::byte> memory;  // 0xFF is a NaN: uninitialised scratch that is read shows
};

}  // namespace regard::kernel::testing
