#include "regard/kernel/top_keys.h"

#include <algorithm>

namespace regard::kernel {
namespace {

// Without a jump: which of two candidates is better cannot be guessed.
bool better(const Candidate& a, const Candidate& b) {
  return ((a.logit > b.logit) | ((a.logit == b.logit) & (a.key < b.key))) != 0;
}

// Puts each in the place that the number of better ones says.
constexpr int64_t kFew = 24;
void sort_few(Candidate* candidates, int64_t count) {
  int64_t places[kFew] = {};
  Candidate sorted[kFew];
  for (int64_t i = 1; i < count; ++i)
    for (int64_t j = 0; j < i; ++j) {
      const auto before = static_cast<int64_t>(better(candidates[j], candidates[i]));
      places[i] += before;
      places[j] += 1 - before;
    }
  for (int64_t i = 0; i < count; ++i) sorted[places[i]] = candidates[i];
  std::copy_n(sorted, count, candidates);
}

}  // namespace

float keep_best(Candidate* candidates, int64_t& count, int64_t k) {
  std::nth_element(candidates, candidates + (k - 1), candidates + count, better);
  count = k;
  return candidates[k - 1].logit;
}

int64_t sort_best(Candidate* candidates, int64_t count, int64_t k) {
  const int64_t best = std::min(count, k);
  if (count <= kFew)
    sort_few(candidates, count);
  else
    std::partial_sort(candidates, candidates + best, candidates + count, better);
  return best;
}

}  // namespace regard::kernel
