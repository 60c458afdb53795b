#pragma once

#include <cstdint>
#include <vector>

namespace regard::model {

// (5 + n) / 6 to the power of alpha: what log P of n tokens is divided by, so that longer hypotheses are not
// at a loss (Wu et al. 2016, arXiv 1609.08144, equation 14).
double length_norm(int64_t tokens, double alpha);

struct Hypothesis {
  std::vector<int64_t> ids;    // without what begins and ends a text
  double log_probability = 0;  // of the ids and, where finished, the end, in nats
  bool finished = false;       // by its end
  double score = 0;            // log_probability / length_norm(tokens with the end, alpha)
};

// The search for the likeliest continuation of one text; knows no model. Each step takes the `beam` likeliest
// continuations of all live hypotheses: of the first `beam` candidates those that end are finished, and the
// first `beam` that do not end go on. Done when `beam` are finished or the live ones have `limit` tokens
// without an end. With a beam of 1: always the likeliest next token.
class BeamSearch {
 public:
  BeamSearch(int64_t beam, double alpha, int64_t end, int64_t limit);

  struct Continuation {
    int64_t row = 0;  // of a live hypothesis
    int64_t id = 0;
    double log_probability = 0;  // of the id alone
  };

  const std::vector<Hypothesis>& live() const { return live_; }
  bool done() const { return live_.empty(); }
  // candidates: of each live hypothesis at least its 2 * beam likeliest, in any order; equally likely ones
  // count by row, then id. Returns which hypotheses go on with which id: the new live ones, in their order.
  std::vector<Continuation> step(std::vector<Continuation> candidates);
  // The best score; a finished hypothesis before one that was cut off, the earlier of equal ones.
  const Hypothesis& best() const;

 private:
  void keep(Hypothesis hypothesis);

  int64_t beam_;
  double alpha_;
  int64_t end_;
  int64_t limit_;
  std::vector<Hypothesis> live_;
  std::vector<Hypothesis> kept_;
};

}  // namespace regard::model
