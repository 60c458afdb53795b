#include "regard/train/numpy_random.h"

#include <array>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

namespace regard::train {
namespace {

using Words = std::array<uint32_t, 8>;

constexpr size_t kPool = 4;

// A step of NumPy's SeedSequence: the multiplier changes with each call.
struct Hash {
  uint32_t constant;
  uint32_t multiplier;
  uint32_t operator()(uint32_t value) {
    value ^= constant;
    constant *= multiplier;
    value *= constant;
    return value ^ value >> 16;
  }
};

uint32_t mix(uint32_t x, uint32_t y) {
  const uint32_t mixed = 0xCA01F9DDU * x - 0x4973F715U * y;
  return mixed ^ mixed >> 16;
}

// SeedSequence(seed).generate_state(8).
Words seed_words(uint32_t seed) {
  Hash in{0x43B0D7E5U, 0x931E8875U};
  std::array<uint32_t, kPool> pool;
  for (size_t i = 0; i < kPool; ++i) pool[i] = in(i == 0 ? seed : 0);
  for (size_t from = 0; from < kPool; ++from) {
    for (size_t to = 0; to < kPool; ++to) {
      if (from != to) pool[to] = mix(pool[to], in(pool[from]));
    }
  }
  Hash out{0x8B51F9DDU, 0x58F38DEDU};
  Words words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = out(pool[i % kPool]);
  return words;
}

// The 128 bits of a product.
std::pair<uint64_t, uint64_t> product(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & 0xFFFFFFFF, a1 = a >> 32, b0 = b & 0xFFFFFFFF, b1 = b >> 32;
  const uint64_t low = a0 * b0, cross1 = a1 * b0, cross2 = a0 * b1;
  const uint64_t middle = (low >> 32) + (cross1 & 0xFFFFFFFF) + (cross2 & 0xFFFFFFFF);
  return {a1 * b1 + (cross1 >> 32) + (cross2 >> 32) + (middle >> 32), (middle << 32) | (low & 0xFFFFFFFF)};
}

}  // namespace

NumpyRandom::NumpyRandom(uint32_t seed) {
  const Words words = seed_words(seed);
  const auto wide = [&](size_t i) { return static_cast<uint64_t>(words[2 * i + 1]) << 32 | words[2 * i]; };
  const Wide start{wide(0), wide(1)};
  const Wide stream{wide(2), wide(3)};
  increment_ = {stream.high << 1 | stream.low >> 63, stream.low << 1 | 1};
  step();
  const uint64_t low = state_.low + start.low;
  state_ = {state_.high + start.high + (low < start.low ? 1 : 0), low};
  step();
}

void NumpyRandom::step() {
  constexpr Wide kMultiplier{2549297995355413924U, 4865540595714422341U};
  const auto [high, low] = product(state_.low, kMultiplier.low);
  const uint64_t top = high + state_.high * kMultiplier.low + state_.low * kMultiplier.high;
  const uint64_t sum = low + increment_.low;
  state_ = {top + increment_.high + (sum < low ? 1 : 0), sum};
}

uint64_t NumpyRandom::next() {
  step();
  return std::rotr(state_.high ^ state_.low, static_cast<int>(state_.high >> 58));
}

uint32_t NumpyRandom::next_half() {
  if (spare_is_there_) {
    spare_is_there_ = false;
    return spare_;
  }
  const uint64_t both = next();
  spare_ = static_cast<uint32_t>(both >> 32);
  spare_is_there_ = true;
  return static_cast<uint32_t>(both);
}

uint32_t NumpyRandom::at_most(uint32_t most) {
  if (most == 0) return 0;
  const uint32_t mask = UINT32_MAX >> std::countl_zero(most);
  for (;;) {
    const uint32_t draw = next_half() & mask;
    if (draw <= most) return draw;
  }
}

std::vector<int64_t> NumpyRandom::permutation(std::vector<int64_t> values) {
  for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[at_most(static_cast<uint32_t>(i))]);
  return values;
}

std::vector<int64_t> NumpyRandom::permutation(int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return permutation(std::move(values));
}

}  // namespace regard::train
