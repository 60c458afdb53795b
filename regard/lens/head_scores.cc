#include "regard/lens/head_scores.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <unordered_map>

namespace regard::lens {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ln x for positive normal x, to 1e-7: x = 2^e m with m near 1, ln m = 2 atanh((m - 1) / (m + 1)). Plain
// arithmetic without a table or a branch, so that compilers vectorise loops over it; a long text needs one
// for each of its L^2 weights.
inline float fast_log(float x) {
  const auto bits = std::bit_cast<int32_t>(x);
  const int32_t shifted = bits - 0x3F3504F3;  // sqrt(1/2): m in [sqrt(1/2), sqrt(2))
  const int32_t exponent = shifted >> 23;
  const float m = std::bit_cast<float>(bits - (exponent << 23));
  const float s = (m - 1.0F) / (m + 1.0F);
  const float s2 = s * s;
  const float atanh = s * (1.0F + s2 * (1.0F / 3 + s2 * (1.0F / 5 + s2 * (1.0F / 7 + s2 * (1.0F / 9)))));
  return static_cast<float>(exponent) * 0.693147180559945F + 2.0F * atanh;
}

}  // namespace

TextPatterns::TextPatterns(std::vector<int64_t> ids, std::vector<uint8_t> special, bool causal)
    : ids_(std::move(ids)), special_(std::move(special)), causal_(causal) {
  if (special_.empty()) special_.resize(ids_.size());
  if (special_.size() != ids_.size()) {
    throw std::invalid_argument("special: " + std::to_string(special_.size()) + " flags for " +
                                std::to_string(ids_.size()) + " tokens");
  }
  has_special_ = std::any_of(special_.begin(), special_.end(), [](uint8_t s) { return s != 0; });
  skip_special_rows_ =
      has_special_ && std::any_of(special_.begin(), special_.end(), [](uint8_t s) { return s == 0; });
  group_of_.assign(ids_.size(), -1);
  std::unordered_map<int64_t, int64_t> group_of_id;
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t id = ids_[static_cast<size_t>(i)];
    if (id < 0 || this->special(i)) continue;
    const auto [at, is_new] = group_of_id.try_emplace(id, static_cast<int64_t>(groups_.size()));
    if (is_new) groups_.emplace_back();
    groups_[static_cast<size_t>(at->second)].push_back(i);
    group_of_[static_cast<size_t>(i)] = at->second;
  }
}

std::span<const int64_t> TextPatterns::same(int64_t i) const {
  const int64_t group = group_of_[static_cast<size_t>(i)];
  if (group < 0) return {};
  return groups_[static_cast<size_t>(group)];
}

float PatternSums::Mean::mean(int64_t at_least) const {
  return rows >= std::max<int64_t>(at_least, 1) ? static_cast<float>(sum / static_cast<double>(rows)) : kNan;
}

void PatternSums::add(const TextPatterns& text, int64_t i, std::span<const float> row, float overlap,
                      int64_t visible) {
  if (!text.counts(i)) return;
  const int64_t n = text.size();
  const auto weight = [&](int64_t j) { return static_cast<double>(row[static_cast<size_t>(j)]); };
  if (i >= 1) previous_.add(weight(i - 1));
  if (!text.causal() && i + 1 < n) next_.add(weight(i + 1));
  if (!text.causal() || i >= 1) self_.add(weight(i));
  if (i >= 1) first_.add(weight(0));
  double special = 0;
  if (text.has_special()) {
    for (int64_t j = 0; j < n; ++j) {
      if (text.special(j)) special += weight(j);
    }
    special_.add(special);
  }
  if (!text.causal()) {
    sink_.add(special);
  } else if (i >= 1) {
    sink_.add(special + (text.special(0) ? 0 : weight(0)));
  }
  double same = 0;
  double induction = 0;
  int64_t same_keys = 0;
  int64_t induction_keys = 0;
  for (const int64_t j : text.same(i)) {
    if (text.causal() && j > i) break;
    if (j != i) {
      same += weight(j);
      ++same_keys;
    }
    if (j + 1 <= i) {
      induction += weight(j + 1);
      ++induction_keys;
    }
  }
  if (same_keys > 0) same_.add(same);
  if (induction_keys > 0) induction_.add(induction);
  // A row that sees one key only is broad and narrow at once: it says nothing.
  if (visible >= 2) {
    const double narrowest = 1.0 / static_cast<double>(visible);
    broad_.add((overlap - narrowest) / (1 - narrowest));
  }
}

PatternScores PatternSums::scores(const TextPatterns& text) const {
  PatternScores scores;
  scores.previous = previous_.mean();
  scores.next = text.causal() ? kNan : next_.mean();
  scores.self = self_.mean();
  scores.first = first_.mean();
  scores.special = text.has_special() ? special_.mean() : kNan;
  scores.same_token = same_.mean(kMinRepeatedRows);
  scores.induction = induction_.mean(kMinRepeatedRows);
  scores.broad = broad_.mean();
  return scores;
}

float PatternSums::sink(const TextPatterns&) const {
  return sink_.rows > 0 ? sink_.mean() : 0;
}

RowStatistics row_statistics(std::span<const float> weights, int64_t visible) {
  constexpr size_t kLanes =
      16;  // independent sums, so that the loop vectorises without reordering arithmetic
  const float even = visible > 0 ? 1.0F / static_cast<float>(visible) : 0;
  std::array<float, kLanes> entropy{};
  std::array<float, kLanes> overlap{};
  const size_t whole = weights.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float w = weights[i + lane];
      entropy[lane] -= w * fast_log(std::max(w, std::numeric_limits<float>::min()));
      overlap[lane] += std::min(w, even);
    }
  }
  RowStatistics out;
  for (size_t i = whole; i < weights.size(); ++i) {
    const float w = weights[i];
    out.entropy -= w * fast_log(std::max(w, std::numeric_limits<float>::min()));
    out.overlap += std::min(w, even);
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    out.entropy += entropy[lane];
    out.overlap += overlap[lane];
  }
  out.entropy = std::max(out.entropy, 0.0F);
  return out;
}

Labelled label_of(const PatternScores& scores, bool causal) {
  Labelled best{Label::mixed, 0};
  for (int i = 0; i < kLabels; ++i) {
    const auto label = static_cast<Label>(i);
    if (label == Label::mixed || (label == Label::first && !causal && scores.special >= scores.first))
      continue;
    if (label == Label::special && causal && scores.first >= scores.special) continue;
    const float score = value(scores, label);
    if (score > best.score) best = {label, score};  // false for NaN
  }
  if (best.score < kMixedBelow) best.label = Label::mixed;
  return best;
}

}  // namespace regard::lens
