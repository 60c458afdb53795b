#pragma once

#include <cstdint>
#include <vector>

namespace regard::train {

// numpy.random.default_rng(seed) as far as data sets that were chosen by it need: the same permutations,
// number for number (PCG64, O'Neill 2014, seeded by NumPy's SeedSequence).
class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed);

  uint64_t next();
  // Uniform in [0, most]: 32-bit draws, as many of their low bits as `most` has, until one is not above it.
  uint32_t at_most(uint32_t most);
  // default_rng(seed).permutation(values).
  std::vector<int64_t> permutation(std::vector<int64_t> values);
  std::vector<int64_t> permutation(int64_t count);

 private:
  struct Wide {
    uint64_t high, low;
  };
  void step();
  uint32_t next_half();

  Wide state_{}, increment_{};
  uint32_t spare_ = 0;
  bool spare_is_there_ = false;
};

}  // namespace regard::train
