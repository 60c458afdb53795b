#include "regard/lens/make_report.h"

#include <algorithm>
#include <stdexcept>

#include "regard/lens/focus.h"
#include "regard/lens/survey.h"
#include "regard/lens/units.h"

namespace regard::lens {
namespace {

HeadReport head_report(HeadSurvey&& head) {
  HeadReport out;
  out.layer = head.layer;
  out.head = head.head;
  out.label = head.label.label;
  out.label_score = head.label.score;
  out.scores = head.scores;
  out.entropy = head.entropy;
  out.entropy_share = head.entropy_share;
  out.sink = head.sink;
  out.block_mean = std::move(head.block_mean);
  out.block_max = std::move(head.block_max);
  return out;
}

void carry_head(const Recording& recording, int64_t layer_number, int64_t head, Report& report) {
  for (const CarriedHead& there : report.carried) {
    if (there.layer == layer_number && there.head == head) return;
  }
  const RecordedLayer& layer = recording.at_layer(layer_number);
  if (head < 0 || head >= layer.heads) {
    throw std::invalid_argument("head " + std::to_string(head) + ": the model has heads 0 to " +
                                std::to_string(layer.heads - 1) + " in each layer");
  }
  CarriedHead out;
  out.layer = layer_number;
  out.head = head;
  out.head_size = layer.key_size;
  out.scale = layer.scale();
  out.lse.assign(layer.lse.begin() + head * layer.tokens, layer.lse.begin() + (head + 1) * layer.tokens);
  for (int64_t i = 0; i < layer.tokens; ++i) {
    const std::vector<float> row = layer.query(head, i);
    out.q.insert(out.q.end(), row.begin(), row.end());
  }
  const int64_t kv_head = head / (layer.heads / layer.kv_heads);
  const auto keys =
      std::find_if(report.carried_keys.begin(), report.carried_keys.end(),
                   [&](const CarriedKeys& k) { return k.layer == layer_number && k.kv_head == kv_head; });
  out.keys = keys - report.carried_keys.begin();
  if (keys == report.carried_keys.end()) {
    CarriedKeys added{layer_number, kv_head, {}};
    for (int64_t i = 0; i < layer.tokens; ++i) {
      const std::vector<float> row = layer.key(head, i);
      added.k.insert(added.k.end(), row.begin(), row.end());
    }
    report.carried_keys.push_back(std::move(added));
  }
  report.carried.push_back(std::move(out));
}

// The heads that were asked for, then those that the focus names, then all others while there is room.
void carry_heads(const Recording& recording, const ReportOptions& options, Report& report) {
  std::vector<std::pair<int64_t, int64_t>> wanted = options.carry;
  for (const FocusHead& head : report.focus.heads) wanted.emplace_back(head.layer, head.head);
  for (const RecordedLayer& layer : recording.layers) {
    for (int64_t head = 0; head < layer.heads; ++head) wanted.emplace_back(layer.layer, head);
  }
  int64_t room = options.carry_bytes;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto [layer, head] = wanted[i];
    const bool asked = i < options.carry.size();
    const int64_t bytes = recording.size() * (2 * recording.at_layer(layer).key_size + 1) * 4;
    if (bytes > room && !asked) continue;
    const size_t before = report.carried.size();
    carry_head(recording, layer, head, report);
    if (report.carried.size() > before) room -= bytes;
  }
}

}  // namespace

Report make_report(const Recording& recording, const ReportOptions& options) {
  if (recording.layers.empty()) throw std::invalid_argument("no layer was recorded");
  Report report;
  report.model = recording.model;
  report.architecture = recording.architecture;
  report.text = recording.text;
  report.layers = recording.model_layers;
  report.heads = recording.heads();
  report.kv_heads = recording.layers.front().kv_heads;
  for (const RecordedLayer& layer : recording.layers) report.kept_layers.push_back(layer.layer);
  report.causal = recording.causal;
  report.window = recording.layers.front().window();
  if (const auto& mask = recording.layers.front().dense_mask; mask) {
    report.dense_mask.assign(mask->begin(), mask->begin() + recording.size() * recording.size());
  }
  report.approximate = recording.precision != Precision::f32;
  report.weak = recording.size() < kWeakTokens;
  report.tokens = recording.tokens;
  report.word_units = recording.words;
  report.words = options.words && !recording.words.empty();
  report.units = report.words ? recording.words : token_units(recording);
  report.special_hidden = options.hide_special;

  // Wrong words are told before the long work.
  Focus& focus = report.focus;
  if (options.token) {
    focus.unit = find_unit(recording, report.units, *options.token);
    focus.chosen_by_user = true;
    focus.reason = "you asked for it";
    const std::string& word = report.units[static_cast<size_t>(focus.unit)].text;
    int64_t before = 0;
    for (int64_t u = 0; u < static_cast<int64_t>(report.units.size()); ++u) {
      if (report.units[static_cast<size_t>(u)].text != word) continue;
      ++focus.occurrences;
      before += u < focus.unit ? 1 : 0;
    }
    focus.occurrence = before + 1;
  }
  if (options.on) focus.on_unit = find_unit(recording, report.units, *options.on);
  for (const auto& [layer, head] : options.carry) {
    const RecordedLayer& kept = recording.at_layer(layer);
    if (head >= 0 && head < kept.heads) continue;
    throw std::invalid_argument("head " + std::to_string(head) + ": the model has heads 0 to " +
                                std::to_string(kept.heads - 1) + " in each layer");
  }

  SurveyOptions survey_options;
  survey_options.blocks = options.blocks;
  survey_options.progress = options.progress;
  std::vector<HeadSurvey> heads = survey(recording, report.units, survey_options);
  if (focus.unit < 0) focus.unit = choose_unit(recording, report.units, heads, focus.reason);
  look_from(recording, report.units, heads, options, focus);
  const Blocks blocks = choose_blocks(recording.size(), options.blocks);
  report.blocks = blocks.count;
  report.block_tokens = blocks.tokens;
  for (HeadSurvey& head : heads) report.grid.push_back(head_report(std::move(head)));
  carry_heads(recording, options, report);
  return report;
}

}  // namespace regard::lens
