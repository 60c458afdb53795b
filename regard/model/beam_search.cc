#include "regard/model/beam_search.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace regard::model {

double length_norm(int64_t tokens, double alpha) {
  return std::pow((5.0 + static_cast<double>(tokens)) / 6.0, alpha);
}

BeamSearch::BeamSearch(int64_t beam, double alpha, int64_t end, int64_t limit)
    : beam_(beam), alpha_(alpha), end_(end), limit_(limit), live_(1) {
  if (beam < 1) {
    throw std::invalid_argument("translate: beam is " + std::to_string(beam) + "; it must be at least 1");
  }
  if (!(alpha >= 0) || !std::isfinite(alpha)) {
    throw std::invalid_argument("translate: length_penalty is " + std::to_string(alpha) +
                                "; it must be 0 or more");
  }
  if (limit < 1) throw std::invalid_argument("translate: a translation must have room for one token");
}

std::vector<BeamSearch::Continuation> BeamSearch::step(std::vector<Continuation> candidates) {
  for (Continuation& candidate : candidates)
    candidate.log_probability += live_[static_cast<size_t>(candidate.row)].log_probability;
  std::sort(candidates.begin(), candidates.end(), [](const Continuation& a, const Continuation& b) {
    if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
    return a.row != b.row ? a.row < b.row : a.id < b.id;
  });
  std::vector<Hypothesis> next;
  std::vector<Continuation> chosen;
  for (size_t rank = 0; rank < candidates.size(); ++rank) {
    if (static_cast<int64_t>(next.size()) == beam_) break;
    const Continuation& candidate = candidates[rank];
    const bool ends = candidate.id == end_;
    if (ends && static_cast<int64_t>(rank) >= beam_) continue;
    Hypothesis grown = live_[static_cast<size_t>(candidate.row)];
    grown.log_probability = candidate.log_probability;
    grown.finished = ends;
    if (ends) {
      keep(std::move(grown));
      continue;
    }
    grown.ids.push_back(candidate.id);
    next.push_back(std::move(grown));
    chosen.push_back(candidate);
  }
  live_ = std::move(next);
  const bool full = !live_.empty() && static_cast<int64_t>(live_[0].ids.size()) >= limit_;
  if (full)
    for (Hypothesis& cut : live_) keep(std::move(cut));
  const auto finished = std::count_if(kept_.begin(), kept_.end(), [](const auto& h) { return h.finished; });
  if (full || finished >= beam_) {
    live_.clear();
    chosen.clear();
  }
  return chosen;
}

void BeamSearch::keep(Hypothesis hypothesis) {
  const auto tokens = static_cast<int64_t>(hypothesis.ids.size()) + (hypothesis.finished ? 1 : 0);
  hypothesis.score = hypothesis.log_probability / length_norm(tokens, alpha_);
  kept_.push_back(std::move(hypothesis));
}

const Hypothesis& BeamSearch::best() const {
  if (kept_.empty()) throw std::invalid_argument("translate: the search has not ended");
  return *std::max_element(kept_.begin(), kept_.end(), [](const Hypothesis& a, const Hypothesis& b) {
    return a.finished != b.finished ? b.finished : a.score < b.score;
  });
}

}  // namespace regard::model
