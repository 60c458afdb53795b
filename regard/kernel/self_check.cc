#include "regard/kernel/self_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <vector>

#include "regard/kernel/forward.h"

namespace regard::kernel {
namespace {

// Sizes that leave tails everywhere: rows, keys, features.
constexpr int64_t kHeads = 4, kKvHeads = 2, kRows = 13, kKeys = 70, kDk = 20, kDv = 18;
constexpr float kScale = 0.25F;

// Row i sees keys up to i + kKeys - kRows.
Span seen(const void*, int64_t, int64_t, int64_t row, int64_t rows, int64_t from) {
  const int64_t all = row + kKeys - kRows + 1;
  const int64_t some = std::min(all + rows - 1, kKeys);
  if (from < all) return {from, all, true};
  return {from, std::max(some, from), false};
}

void seen_bits(const void*, int64_t, int64_t, int64_t row, int64_t rows, int64_t key, int64_t columns,
               uint64_t* words) {
  for (int64_t r = 0; r < rows; ++r) {
    words[r] = 0;
    for (int64_t c = 0; c < columns; ++c)
      if (key + c <= row + r + kKeys - kRows) words[r] |= uint64_t{1} << c;
  }
}

template <class T>
std::vector<T> numbers(int64_t count, uint32_t seed) {
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) {
    seed = seed * 1664525U + 1013904223U;
    const float x = static_cast<float>(seed >> 8) * 0x1p-23F - 1.0F;
    if constexpr (sizeof(T) == 4)
      value = x;
    else if constexpr (dtype_of<T>::value == DType::bf16)
      value = to_bf16(x);
    else
      value = to_f16(x);
  }
  return values;
}

template <class T>
bool right(ForwardTiling::Kind kind) {
  const std::vector<T> q = numbers<T>(kHeads * kRows * kDk, 1);
  const std::vector<T> k = numbers<T>(kKvHeads * kKeys * kDk, 2);
  const std::vector<T> v = numbers<T>(kKvHeads * kKeys * kDv, 3);
  std::vector<float> out(static_cast<size_t>(kHeads * kRows * kDv));
  std::vector<float> lse(static_cast<size_t>(kHeads * kRows));
  Forward p;
  p.q = View<const T>(q.data(), {1, kHeads, kRows, kDk});
  p.k = View<const T>(k.data(), {1, kKvHeads, kKeys, kDk});
  p.v = View<const T>(v.data(), {1, kKvHeads, kKeys, kDv});
  p.out = View<float>(out.data(), {1, kHeads, kRows, kDv});
  p.lse = View<float>(lse.data(), {1, kHeads, kRows, 1});
  p.scale = kScale;
  p.mask = {nullptr, seen, seen_bits};
  ForwardTiling tiling;
  tiling.kind = kind;
  tiling.split_keys = 64;
  const size_t bytes = forward_workspace(p, tiling, 1);
  const auto release = [](std::byte* at) { ::operator delete (at, std::align_val_t{64}); };
  const std::unique_ptr<std::byte, decltype(release)> workspace(
      static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})), release);
  Serial serial;
  forward(p, tiling, {workspace.get(), bytes}, serial);

  const auto queries = p.q.as<const T>();
  const auto keys = p.k.as<const T>();
  const auto values = p.v.as<const T>();
  for (int64_t h = 0; h < kHeads; ++h)
    for (int64_t i = 0; i < kRows; ++i) {
      double sum = 0;
      std::vector<double> want(kDv);
      for (int64_t j = 0; j <= i + kKeys - kRows; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < kDk; ++d)
          dot += static_cast<double>(to_float(queries(0, h, i, d))) * to_float(keys(0, h / 2, j, d));
        const double weight = std::exp(dot * kScale);
        sum += weight;
        for (int64_t d = 0; d < kDv; ++d)
          want[static_cast<size_t>(d)] += weight * to_float(values(0, h / 2, j, d));
      }
      if (!(std::abs(p.lse(0, h, i, 0) - std::log(sum)) < 1e-5)) return false;
      for (int64_t d = 0; d < kDv; ++d)
        if (!(std::abs(p.out.as<float>()(0, h, i, d) - want[static_cast<size_t>(d)] / sum) < 1e-5))
          return false;
    }
  return true;
}

}  // namespace

bool self_check() {
  using Kind = ForwardTiling::Kind;
  for (const Kind kind : {Kind::prefill, Kind::decode})
    if (!right<float>(kind) || !right<bf16>(kind) || !right<f16>(kind)) return false;
  return true;
}

}  // namespace regard::kernel
