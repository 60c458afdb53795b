#include "sample_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace regard::web::testing {
namespace {

using lens::Report;

std::vector<float> draw(std::mt19937& random, int64_t count, float size) {
  std::normal_distribution<float> normal(0, size);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = normal(random);
  return out;
}

void add_tokens(const Sample& sample, Report& report) {
  const auto special = [&](const std::string& name) {
    lens::Token token;
    token.piece = token.text = name;
    token.special = true;
    token.begin = token.end = static_cast<int64_t>(report.text.size());
    report.word_units.push_back({name, static_cast<int64_t>(report.tokens.size()), 1, true, false});
    report.tokens.push_back(token);
  };
  if (sample.special) special("[CLS]");
  for (const std::string& word : sample.words) {
    const bool continues = word.starts_with("##");
    lens::Token token;
    token.piece = word;
    token.text = continues ? word.substr(2) : word;
    token.punctuation = word == "." || word == ",";
    if (!continues && !report.text.empty()) report.text += ' ';
    token.begin = static_cast<int64_t>(report.text.size());
    report.text += token.text;
    token.end = static_cast<int64_t>(report.text.size());
    if (continues) {
      report.word_units.back().text += token.text;
      ++report.word_units.back().count;
    } else {
      report.word_units.push_back(
          {token.text, static_cast<int64_t>(report.tokens.size()), 1, false, token.punctuation});
    }
    report.tokens.push_back(token);
  }
  if (sample.special) special("[SEP]");
}

void add_blocks(const std::vector<double>& weights, int64_t tokens, const Report& report,
                lens::HeadReport& head) {
  const auto cells = static_cast<size_t>(report.blocks * report.blocks);
  std::vector<double> sum(cells);
  std::vector<int64_t> count(cells);
  head.block_max.assign(cells, 0.0F);
  for (int64_t i = 0; i < tokens; ++i) {
    for (int64_t j = 0; j < tokens; ++j) {
      const auto at = static_cast<size_t>(i / report.block_tokens * report.blocks + j / report.block_tokens);
      const double weight = weights[static_cast<size_t>(i * tokens + j)];
      sum[at] += weight;
      ++count[at];
      head.block_max[at] = std::max(head.block_max[at], static_cast<float>(weight));
    }
  }
  for (size_t at = 0; at < cells; ++at) {
    head.block_mean.push_back(static_cast<float>(sum[at] / static_cast<double>(count[at])));
  }
}

// The focus word's row in words: keys summed, queries averaged.
std::vector<float> unit_row(const Report& report, const std::vector<double>& weights, const lens::Unit& row) {
  const auto tokens = static_cast<int64_t>(report.tokens.size());
  std::vector<float> out;
  for (const lens::Unit& unit : report.units) {
    double sum = 0;
    for (int64_t i = row.first; i < row.first + row.count; ++i) {
      for (int64_t j = unit.first; j < unit.first + unit.count; ++j) {
        sum += weights[static_cast<size_t>(i * tokens + j)];
      }
    }
    out.push_back(static_cast<float>(sum / static_cast<double>(row.count)));
  }
  return out;
}

void add_focus_head(const Report& report, const std::vector<double>& weights, lens::Focus& focus,
                    const lens::HeadReport& head) {
  lens::FocusHead seen;
  seen.layer = head.layer;
  seen.head = head.head;
  seen.weights = unit_row(report, weights, report.units[static_cast<size_t>(focus.unit)]);
  for (size_t u = 0; u < report.units.size(); ++u) {
    const lens::Unit& unit = report.units[u];
    if (static_cast<int64_t>(u) == focus.unit || unit.special || unit.punctuation) continue;
    if (report.causal && u == 0) continue;
    if (seen.top_unit < 0 || seen.weights[u] > seen.top_weight) {
      seen.top_unit = static_cast<int64_t>(u);
      seen.top_weight = seen.weights[u];
    }
  }
  for (size_t u = 0; u < seen.weights.size(); ++u) {
    focus.mean_weights[u] += seen.weights[u] / static_cast<float>(report.layers * report.heads);
  }
  focus.heads.push_back(std::move(seen));
}

}  // namespace

std::vector<double> sample_weights(const Report& report, int64_t layer, int64_t head) {
  const auto tokens = static_cast<int64_t>(report.tokens.size());
  std::vector<double> out(static_cast<size_t>(tokens * tokens));
  for (const lens::CarriedHead& carried : report.carried) {
    if (carried.layer != layer || carried.head != head) continue;
    const std::vector<float>& k = report.carried_keys[static_cast<size_t>(carried.keys)].k;
    for (int64_t i = 0; i < tokens; ++i) {
      for (int64_t j = 0; j < (report.causal ? i + 1 : tokens); ++j) {
        double dot = 0;
        for (int64_t d = 0; d < carried.head_size; ++d) {
          dot += static_cast<double>(carried.q[static_cast<size_t>(i * carried.head_size + d)]) *
                 k[static_cast<size_t>(j * carried.head_size + d)];
        }
        out[static_cast<size_t>(i * tokens + j)] =
            std::exp(carried.scale * dot - carried.lse[static_cast<size_t>(i)]);
      }
    }
  }
  return out;
}

Report sample_report(const Sample& sample) {
  Report report;
  report.model = "sample";
  report.architecture = sample.causal ? "llama" : "bert";
  report.layers = sample.layers;
  report.heads = sample.heads;
  report.kv_heads = sample.kv_heads;
  report.causal = sample.causal;
  report.words = true;
  report.command = "regard look --model sample text.txt";
  add_tokens(sample, report);
  report.units = report.word_units;
  const auto tokens = static_cast<int64_t>(report.tokens.size());
  report.weak = tokens < 32;
  report.block_tokens = (tokens + sample.most_blocks - 1) / sample.most_blocks;
  report.blocks = (tokens + report.block_tokens - 1) / report.block_tokens;
  lens::Focus& focus = report.focus;
  for (size_t u = 0; u < report.units.size(); ++u) {
    if (report.units[u].first <= sample.focus) focus.unit = static_cast<int64_t>(u);
  }
  focus.reason = "a test asked for it";
  focus.mean_weights.assign(report.units.size(), 0.0F);

  std::mt19937 random(7);
  for (int64_t layer = 0; layer < sample.layers; ++layer) {
    report.kept_layers.push_back(layer);
    for (int64_t kv = 0; kv < sample.kv_heads; ++kv) {
      report.carried_keys.push_back({layer, kv, draw(random, tokens * sample.head_size, 1.2F)});
    }
    for (int64_t head = 0; head < sample.heads; ++head) {
      lens::CarriedHead carried;
      carried.layer = layer;
      carried.head = head;
      carried.keys = layer * sample.kv_heads + head / (sample.heads / sample.kv_heads);
      carried.head_size = sample.head_size;
      carried.scale = 1.0F / std::sqrt(static_cast<float>(sample.head_size));
      carried.q = draw(random, tokens * sample.head_size, 1.0F);
      // Queries lean towards the key before them, so that the maps have a shape.
      const std::vector<float>& k = report.carried_keys[static_cast<size_t>(carried.keys)].k;
      for (size_t i = static_cast<size_t>(sample.head_size); i < carried.q.size(); ++i) {
        carried.q[i] += static_cast<float>(head) * k[i - static_cast<size_t>(sample.head_size)];
      }
      carried.lse.assign(static_cast<size_t>(tokens), 0.0F);
      report.carried.push_back(std::move(carried));
      std::vector<double> weights = sample_weights(report, layer, head);
      double entropy = 0;
      for (int64_t i = 0; i < tokens; ++i) {
        const auto row = weights.begin() + i * tokens;
        const double sum = std::accumulate(row, row + tokens, 0.0);
        report.carried.back().lse[static_cast<size_t>(i)] = static_cast<float>(std::log(sum));
        for (auto w = row; w != row + tokens; ++w) {
          *w /= sum;
          if (*w > 0) entropy -= *w * std::log(*w) / static_cast<double>(tokens);
        }
      }
      lens::HeadReport facts;
      facts.layer = layer;
      facts.head = head;
      facts.label = head == 0 ? lens::Label::broad : lens::Label::previous;
      facts.label_score = 0.5F;
      facts.entropy = static_cast<float>(entropy);
      facts.entropy_share = static_cast<float>(entropy / std::log(static_cast<double>(tokens)));
      add_blocks(weights, tokens, report, facts);
      add_focus_head(report, weights, focus, facts);
      report.grid.push_back(std::move(facts));
    }
  }
  std::stable_sort(focus.heads.begin(), focus.heads.end(),
                   [](const auto& a, const auto& b) { return a.top_weight > b.top_weight; });
  if (focus.heads.size() > 8) focus.heads.resize(8);
  report.carried.resize(static_cast<size_t>(
      std::min<int64_t>(sample.carried_heads, static_cast<int64_t>(report.carried.size()))));
  return report;
}

}  // namespace regard::web::testing
