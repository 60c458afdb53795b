#include "regard/kernel/dropout.h"

#include <array>
#include <cstddef>

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

}  // namespace regard::kernel
