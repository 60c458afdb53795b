#include "regard/kernel/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "regard/kernel/dropout.cc"
#include "regard/kernel/hwy_config.h"

#include <hwy/foreach_target.h>

#include "regard/kernel/dropout-inl.h"
#include "regard/kernel/some-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernel::HWY_NAMESPACE {

// Numbers [begin, end) of an array; begin is a multiple of 256.
void DropElements(const Dropout& dropout, const float* x, int64_t begin, int64_t end, float* y) {
  const D d;
  const Vec scale = hn::Set(d, dropout.scale());
  uint64_t words[4];
  constexpr int64_t kTogether = 256;
  for (int64_t first = begin; first < end; first += kTogether) {
    kept_words(dropout, 0, 0, first >> 32, first & 0xFFFFFFFF, words);
    each_vector(HWY_MIN(kTogether, end - first), [&](int64_t i, int64_t n) HWY_ATTR {
      const auto stays = visible(d, words[i / 64] >> (i % 64));
      store_some(hn::IfThenElseZero(stays, hn::Mul(load_some(x + first + i, n), scale)), n, y + first + i);
    });
  }
}

}  // namespace regard::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <array>
#include <cstddef>

#include "regard/kernel/dispatch.h"

namespace regard::kernel {
namespace {

using Words = std::array<uint32_t, 4>;

Words philox(Words counter, uint64_t key) {
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// run(begin, end) of parts of an array.
template <class Run>
void each_part(int64_t count, Parallel& parallel, Run&& run) {
  constexpr int64_t kPart = int64_t{1} << 14;
  parallel.run((count + kPart - 1) / kPart,
               [&](int64_t task, int) { run(task * kPart, std::min(count, (task + 1) * kPart)); });
}

}  // namespace

uint64_t kept(const Dropout& dropout, int64_t batch, int64_t head, int64_t row, int64_t key,
              int64_t columns) {
  uint64_t word = 0;
  Words draws{};
  int64_t drawn = -1;
  for (int64_t c = 0; c < columns; ++c) {
    const int64_t group = (key + c) / 8;
    if (group != drawn) {
      draws = philox({static_cast<uint32_t>(group), static_cast<uint32_t>(row), static_cast<uint32_t>(head),
                      static_cast<uint32_t>(batch + dropout.first_batch)},
                     dropout.key());
      drawn = group;
    }
    const int64_t draw = (key + c) % 8;
    const uint32_t bits = draws[static_cast<size_t>(draw / 2)] >> (draw % 2 * 16) & 0xFFFF;
    word |= uint64_t{bits >= dropout.threshold} << c;
  }
  return word;
}

HWY_EXPORT(DropElements);

void drop_elements(const Dropout& dropout, const float* x, int64_t count, float* y, Parallel& parallel) {
  const auto drop = REGARD_DISPATCH(DropElements);
  each_part(count, parallel, [&](int64_t begin, int64_t end) { drop(dropout, x, begin, end, y); });
}

void drop_elements(const Dropout& dropout, const double* x, int64_t count, double* y, Parallel& parallel) {
  const double scale = dropout.scale();
  each_part(count, parallel, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += 64) {
      const int64_t n = std::min<int64_t>(64, end - first);
      const uint64_t word = kept(dropout, 0, 0, first >> 32, first & 0xFFFFFFFF, n);
      for (int64_t i = 0; i < n; ++i) y[first + i] = (word >> i & 1) != 0 ? x[first + i] * scale : 0.0;
    }
  });
}

}  // namespace regard::kernel

#endif  // HWY_ONCE
