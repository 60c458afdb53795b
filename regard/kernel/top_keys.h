#pragma once

#include <cstdint>

namespace regard::kernel {

struct Candidate {
  float logit;  // in units of log2
  int64_t key;
};

// Candidates that a row collects before they are cut back to the best k.
inline int64_t candidate_capacity(int64_t k) {
  return 4 * k + 64;
}

// Cuts the candidates back to the best k (largest logit, then lowest key) and returns the k-th logit: what
// comes later must be above it. count > k.
float keep_best(Candidate* candidates, int64_t& count, int64_t k);

// Sorts the best min(count, k) to the front and returns how many there are.
int64_t sort_best(Candidate* candidates, int64_t count, int64_t k);

}  // namespace regard::kernel
