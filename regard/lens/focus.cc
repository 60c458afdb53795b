#include "regard/lens/focus.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "regard/lens/mixture.h"
#include "regard/lens/rollout.h"
#include "regard/lens/units.h"

namespace regard::lens {
namespace {

constexpr int64_t kNamedTerms = 5;
constexpr size_t kReceivedPairs = 8;
constexpr size_t kStrongest = 2;

std::string rounded(float value, int digits) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, static_cast<double>(value));
  return buffer;
}

std::string head_name(int64_t layer, int64_t head) {
  std::string name = "L";  // "L" + ... : GCC 12 then warns of an overflow that is not there
  return name.append(std::to_string(layer)).append("H").append(std::to_string(head));
}

// Whether a unit may be called what a word looks at.
bool is_word(std::span<const Unit> units, int64_t unit, bool causal) {
  const Unit& u = units[static_cast<size_t>(unit)];
  return !u.special && !u.punctuation && !(causal && unit == 0);
}

void rank(FocusHead& head, std::span<const Unit> units, const Focus& focus, bool causal) {
  if (focus.on_unit >= 0) {
    head.top_unit = focus.on_unit;
    head.top_weight = head.weights[static_cast<size_t>(focus.on_unit)];
    return;
  }
  for (int64_t u = 0; u < static_cast<int64_t>(units.size()); ++u) {
    if (u == focus.unit || !is_word(units, u, causal)) continue;
    const float weight = head.weights[static_cast<size_t>(u)];
    if (weight > head.top_weight) {
      head.top_weight = weight;
      head.top_unit = u;
    }
  }
}

// Keeps the two largest.
void remember(const Focus::Strongest& head, std::vector<Focus::Strongest>& kept) {
  if (kept.size() == kStrongest && head.weight <= kept.back().weight) return;
  const auto at = std::upper_bound(kept.begin(), kept.end(), head,
                                   [](const auto& a, const auto& b) { return a.weight > b.weight; });
  kept.insert(at, head);
  if (kept.size() > kStrongest) kept.pop_back();
}

void add_received(const Recording& recording, std::span<const Unit> units, std::span<const HeadSurvey> heads,
                  Focus& focus) {
  focus.received_mean.assign(units.size(), 0.0F);
  size_t index = 0;
  for (const RecordedLayer& layer : recording.layers) {
    for (int64_t head = 0; head < layer.heads; ++head, ++index) {
      const std::vector<float> column = unit_column(layer, head, units, focus.unit);
      for (size_t u = 0; u < units.size(); ++u) {
        focus.received_mean[u] += column[u] / static_cast<float>(heads.size());
        if (static_cast<int64_t>(u) == focus.unit || units[u].special || units[u].punctuation) continue;
        if (focus.received.size() == kReceivedPairs && column[u] <= focus.received.back().weight) continue;
        const Focus::Received pair{layer.layer, head, heads[index].label.label, static_cast<int64_t>(u),
                                   column[u]};
        const auto at = std::upper_bound(
            focus.received.begin(), focus.received.end(), pair,
            [](const Focus::Received& a, const Focus::Received& b) { return a.weight > b.weight; });
        focus.received.insert(at, pair);
        if (focus.received.size() > kReceivedPairs) focus.received.pop_back();
      }
    }
  }
}

void add_rollout(const Recording& recording, std::span<const Unit> units, bool hide, Focus& focus) {
  if (recording.size() > kRolloutLimit ||
      static_cast<int64_t>(recording.layers.size()) != recording.model_layers) {
    return;
  }
  const Unit& unit = units[static_cast<size_t>(focus.unit)];
  focus.rollout.assign(units.size(), 0.0F);
  std::vector<float> merged(units.size());
  for (int64_t t = unit.first; t < unit.first + unit.count; ++t) {
    merge_keys(rollout_row(recording, t), units, merged);
    for (size_t u = 0; u < units.size(); ++u) focus.rollout[u] += merged[u] / static_cast<float>(unit.count);
  }
  if (hide) hide_special(focus.rollout, units);
}

}  // namespace

int64_t choose_unit(const Recording& recording, std::span<const Unit> units,
                    std::span<const HeadSurvey> heads, std::string& reason) {
  const HeadSurvey* best = nullptr;
  for (const HeadSurvey& head : heads) {
    if (head.best_row >= 0 && (best == nullptr || head.best_lift > best->best_lift)) best = &head;
  }
  if (best != nullptr) {
    const Unit& row = units[static_cast<size_t>(best->best_row)];
    const Unit& key = units[static_cast<size_t>(best->best_key)];
    reason = "no word was chosen, so the one with the most pointed look: head " +
             head_name(best->layer, best->head) + " gives " + rounded(best->best_weight, 2) + " of '" +
             row.text + "' to '" + key.text + "', " + rounded(best->best_lift, best->best_lift < 10 ? 1 : 0) +
             " times an even share";
    return best->best_row;
  }
  const auto first_word = [&](bool causal) {
    for (int64_t u = static_cast<int64_t>(units.size()) - 1; u >= 0; --u) {
      if (is_word(units, u, causal)) return u;
    }
    return int64_t{-1};
  };
  int64_t unit = first_word(recording.causal);
  if (unit < 0) unit = first_word(false);
  if (unit < 0 && !units.empty()) unit = static_cast<int64_t>(units.size()) - 1;
  reason = "no word was chosen and no two words look at each other, so the last one";
  return unit;
}

void look_from(const Recording& recording, std::span<const Unit> units, std::span<const HeadSurvey> heads,
               const ReportOptions& options, Focus& focus) {
  focus.mean_weights.assign(units.size(), 0.0F);
  focus.strongest.resize(units.size());
  size_t index = 0;
  for (const RecordedLayer& layer : recording.layers) {
    for (int64_t head = 0; head < layer.heads; ++head, ++index) {
      FocusHead seen;
      seen.layer = layer.layer;
      seen.head = head;
      seen.label = heads[index].label.label;
      seen.label_score = heads[index].label.score;
      seen.weights = unit_row(layer, head, units, focus.unit);
      if (options.hide_special) hide_special(seen.weights, units);
      rank(seen, units, focus, recording.causal);
      for (size_t u = 0; u < units.size(); ++u) {
        focus.mean_weights[u] += seen.weights[u];
        remember({seen.layer, seen.head, seen.label, seen.weights[u]}, focus.strongest[u]);
      }
      const auto at =
          std::upper_bound(focus.heads.begin(), focus.heads.end(), seen,
                           [](const auto& a, const auto& b) { return a.top_weight > b.top_weight; });
      focus.heads.insert(at, std::move(seen));
      if (static_cast<int64_t>(focus.heads.size()) > options.best_heads) focus.heads.pop_back();
    }
  }
  for (float& weight : focus.mean_weights) weight /= static_cast<float>(heads.size());
  focus.mean_mixture = mixture(focus.mean_weights, units, recording.causal, kNamedTerms);
  for (FocusHead& head : focus.heads)
    head.mixture = mixture(head.weights, units, recording.causal, kNamedTerms);
  add_received(recording, units, heads, focus);
  add_rollout(recording, units, options.hide_special, focus);
}

}  // namespace regard::lens
