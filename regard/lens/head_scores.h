// What a head does on a text, as numbers between 0 and 1, and the label that follows.
//
// Each score is the mean, over the rows that can show a pattern, of the weight that fits it (the direct
// scores of the interpretability literature; no division by the whole map). Rows of special tokens are left
// out where there are others: they stand for no word. With A the weights, t the tokens and i, j positions:
//   previous    A[i, i-1]                            rows i >= 1
//   next        A[i, i+1]                            bidirectional only
//   self        A[i, i]                              causal: rows i >= 1, the first can do nothing else
//   first       A[i, 0]                              rows i >= 1
//   special     sum of A[i, j], j special
//   same token  sum of A[i, j], j != i, t[j] = t[i]        rows where such a j is visible, at least 4 of them
//   induction   sum of A[i, j], j <= i, t[j-1] = t[i]      rows where such a j exists, at least 4 of them
//   broad       sum of min(A[i, j], 1 / n) over the n visible keys, rescaled so that an even spread is 1 and
//   a
//               single key 0; rows with n >= 2
// The label is the pattern with the largest score, "mixed" when that is below 0.4. A first token that is
// special counts as special in a bidirectional model and as first in a causal one, where heads without
// anything to do rest on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regard/lens/report.h"

namespace regard::lens {

inline constexpr float kMixedBelow = 0.4F;
inline constexpr int64_t kWeakTokens = 32;      // labels on shorter texts rest on few rows
inline constexpr int64_t kMinRepeatedRows = 4;  // rows that same token and induction need

// What of a text the scores need; shared by all heads.
class TextPatterns {
 public:
  // ids[i] names the token (any numbering; -1: matches nothing). special may be empty.
  TextPatterns(std::vector<int64_t> ids, std::vector<uint8_t> special, bool causal);

  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  bool causal() const { return causal_; }
  bool special(int64_t i) const { return special_[static_cast<size_t>(i)] != 0; }
  bool has_special() const { return has_special_; }
  bool counts(int64_t i) const { return !skip_special_rows_ || !special(i); }
  // Positions that hold the same token as i, ascending, i itself included. Empty for special or unknown ones.
  std::span<const int64_t> same(int64_t i) const;

 private:
  std::vector<int64_t> ids_;
  std::vector<uint8_t> special_;
  bool causal_;
  bool has_special_ = false;
  bool skip_special_rows_ = false;
  std::vector<std::vector<int64_t>> groups_;
  std::vector<int64_t> group_of_;  // -1: none
};

// Takes a head's rows one by one, in any order; O(1) memory.
class PatternSums {
 public:
  // row: [tokens] weights of query i, which sees `visible` keys; overlap: see row_statistics().
  void add(const TextPatterns& text, int64_t i, std::span<const float> row, float overlap, int64_t visible);
  PatternScores scores(const TextPatterns& text) const;
  float sink(const TextPatterns& text) const;  // mean mass on special tokens, and on a causal model's first

 private:
  struct Mean {
    double sum = 0;
    int64_t rows = 0;
    void add(double x) {
      sum += x;
      ++rows;
    }
    float mean(int64_t at_least = 1) const;  // NaN with fewer rows
  };
  Mean previous_, next_, self_, first_, special_, same_, induction_, broad_, sink_;
};

struct RowStatistics {
  float entropy = 0;  // nats
  float overlap = 0;  // sum of min(weight, 1 / visible), from 1 / visible (one key) to 1 (all alike)
};
RowStatistics row_statistics(std::span<const float> weights, int64_t visible);

struct Labelled {
  Label label = Label::mixed;
  float score = 0;
};
Labelled label_of(const PatternScores& scores, bool causal);

}  // namespace regard::lens
