#include "regard/kernel/top_keys.h"

#include <algorithm>

namespace regard::kernel {
namespace {

bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.key < b.key);
}

}  // namespace

float keep_best(Candidate* candidates, int64_t& count, int64_t k) {
  std::nth_element(candidates, candidates + (k - 1), candidates + count, better);
  count = k;
  return candidates[k - 1].logit;
}

int64_t sort_best(Candidate* candidates, int64_t count, int64_t k) {
  const int64_t best = std::min(count, k);
  std::partial_sort(candidates, candidates + best, candidates + count, better);
  return best;
}

}  // namespace regard::kernel
