// Orders and numbers that are the same on every machine: the standard's distributions and shuffle are not.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace regard::train {

// The seed of whatever is made up or drawn, where nobody says another one.
inline constexpr uint64_t kSeed = 1;

// A generator for one purpose of one seed: streams of the same seed have nothing to do with each other.
inline std::mt19937_64 generator_of(uint64_t seed, uint64_t stream) {
  std::seed_seq words{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32),
                      static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  return std::mt19937_64(words);
}

// Uniform in [0, limit), limit > 0.
inline uint64_t below(std::mt19937_64& generator, uint64_t limit) {
  const uint64_t cut = (0 - limit) % limit;  // what 2^64 is more than a multiple of limit
  for (;;) {
    const uint64_t draw = generator();
    if (draw >= cut) return draw % limit;
  }
}

// 0 ... count - 1 in a random order (Fisher and Yates).
inline std::vector<int64_t> shuffled(int64_t count, std::mt19937_64& generator) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = i;
  for (size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[below(generator, i)]);
  return out;
}

}  // namespace regard::train
