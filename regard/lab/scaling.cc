#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "regard/lab/columns.h"
#include "regard/lab/distribution.h"
#include "regard/lab/draws.h"
#include "regard/lab/measures.h"
#include "regard/lab/small_model.h"

// Why logits are divided by sqrt(d_k): variance, gaps, saturation, vanishing gradient, step by step (Vaswani
// et al. 2017, arXiv 1706.03762, section 3.2.1 and its footnote).
namespace regard::lab {
namespace {

constexpr int64_t kKeys = 128;

// What one way of scaling makes of random rows.
struct Scaled {
  std::vector<double> entropies;  // over ln n
  std::vector<double> largest;
  std::vector<double> traces;     // of softmax's Jacobian
  std::vector<double> gradients;  // |d loss / d q| for a random gradient that reaches the weights

  void add(const std::vector<double>& logits, double scale, const std::vector<double>& keys,
           const std::vector<double>& arriving) {
    const std::vector<double> weights = softmax(logits, scale);
    entropies.push_back(entropy(weights) / std::log(static_cast<double>(kKeys)));
    largest.push_back(*std::max_element(weights.begin(), weights.end()));
    traces.push_back(jacobian_trace(weights));
    const double mean = dot(weights, arriving);
    const size_t d = keys.size() / kKeys;
    std::vector<double> gradient(d);
    for (size_t j = 0; j < kKeys; ++j) {
      const double through = scale * weights[j] * (arriving[j] - mean);
      for (size_t c = 0; c < d; ++c) gradient[c] += through * keys[j * d + c];
    }
    gradients.push_back(norm(gradient));
  }
};

double mean(const std::vector<double>& values) {
  return spread(values).mean;
}

// The same in a model that learns: one head, one layer, no feed-forward, which must reverse 16 letters.
struct Way {
  const char* name;
  layer::ScoreKind score;
};
constexpr Way kWays[] = {{"unscaled", layer::ScoreKind::dot}, {"scaled", layer::ScoreKind::scaled_dot}};
constexpr int64_t kTrainedSize = 256;

SmallModelOptions trained_options(const Way& way, int64_t key_size, int64_t seed) {
  return {
      .key_size = key_size, .score = way.score, .feed_forward = false, .seed = static_cast<uint64_t>(seed)};
}

// |d loss / d W_Q| before the first step, over d_k; of d_k = 256 in `found`, by way.
Table first_gradients(const Options& options, std::vector<double> (&found)[2]) {
  Table table{"scaling-gradient",
              "a model that is to reverse 16 letters: gradient of W_Q before the first step",
              {count("d_k"), number("unscaled: |dW_Q|", 4), number("spread", 4), number("scaled: |dW_Q|", 4),
               number("spread ", 4)},
              {}};
  for (const int64_t d : {16, 64, 256, 1024}) {
    std::vector<double> norms[2];
    for (size_t way = 0; way < 2; ++way) {
      for (int64_t seed = 0; seed < options.seeds; ++seed) {
        const SmallModel model(trained_options(kWays[way], d, seed));
        const Batch batch = Reversals(16, 16, static_cast<uint64_t>(seed), 0).next(32);
        norms[way].push_back(gradient_norm(model, batch, "block0_q.weight"));
      }
      if (d == kTrainedSize) found[way] = norms[way];
    }
    const Spread raw = spread(norms[0]);
    const Spread scaled = spread(norms[1]);
    table.add({d, raw.mean, raw.deviation, scaled.mean, scaled.deviation});
  }
  return table;
}

Table trained(const Options& options, int64_t steps, std::vector<double> (&found)[2]) {
  Table table{"scaling-training",
              say("the same, d_k = %lld, trained for %lld steps of 32 texts",
                  static_cast<long long>(kTrainedSize), static_cast<long long>(steps)),
              {text("logits"), number("steps to 95 %", 0), number("spread", 0), number("accuracy", 3),
               number("spread ", 3)},
              {}};
  for (size_t way = 0; way < 2; ++way) {
    std::vector<double> accuracies;
    for (int64_t seed = 0; seed < options.seeds; ++seed) {
      options.tell(say("training %s, seed %lld", kWays[way].name, static_cast<long long>(seed)));
      SmallModel model(trained_options(kWays[way], kTrainedSize, seed));
      const Reversing learned = learn_to_reverse(model, steps);
      found[way].push_back(learned.steps);
      accuracies.push_back(learned.accuracy);
    }
    const Spread until = spread(found[way]);
    const Spread right = spread(accuracies);
    table.add({std::string(kWays[way].name), until.mean, until.deviation, right.mean, right.deviation});
  }
  return table;
}

}  // namespace

Result measure_scaling(const Options& options) {
  const int64_t draws = options.size(400, 100);
  Table table{
      "scaling",
      say("%lld keys, %lld draws of q and k from N(0, 1) for each d_k", static_cast<long long>(kKeys),
          static_cast<long long>(draws * options.seeds)),
      {count("d_k"), number("var(q.k)", 1), number("largest gap", 1), number("H / ln n", 3),
       number("max p", 3), number("median tr J", 4), number("median |dq|", 4), number("scaled: H / ln n", 3),
       number("scaled: max p", 3), number("scaled: median tr J", 4), number("scaled: median |dq|", 4)},
      {}};
  std::vector<Curve> curves = {{"tr J, unscaled", {}, {}},
                               {"tr J, scaled", {}, {}},
                               {"H / ln n, unscaled", {}, {}},
                               {"H / ln n, scaled", {}, {}}};
  bool variance_is_d = true;
  for (const int64_t d : {4, 16, 64, 256, 1024}) {
    options.tell(say("d_k = %lld", static_cast<long long>(d)));
    Scaled raw, scaled;
    std::vector<double> squares;  // of q.k; its mean is 0
    std::vector<double> gaps;
    for (int64_t seed = 0; seed < options.seeds; ++seed) {
      Draws random(static_cast<uint64_t>(seed), static_cast<uint64_t>(d));
      for (int64_t draw = 0; draw < draws; ++draw) {
        const std::vector<double> q = random.normals(d);
        const std::vector<double> keys = random.normals(kKeys * d);
        const std::vector<double> arriving = random.normals(kKeys);
        std::vector<double> logits(kKeys);
        double sum = 0;
        for (int64_t j = 0; j < kKeys; ++j) {
          const auto key = std::span(keys).subspan(static_cast<size_t>(j * d), static_cast<size_t>(d));
          logits[static_cast<size_t>(j)] = dot(q, key);
          sum += logits[static_cast<size_t>(j)] * logits[static_cast<size_t>(j)];
        }
        squares.push_back(sum / kKeys);
        const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
        gaps.push_back(*high - *low);
        raw.add(logits, 1, keys, arriving);
        scaled.add(logits, 1 / std::sqrt(static_cast<double>(d)), keys, arriving);
      }
    }
    const double variance = mean(squares);
    const double error = spread(squares).deviation / std::sqrt(static_cast<double>(squares.size()));
    variance_is_d = variance_is_d && std::abs(variance - static_cast<double>(d)) < 4 * error;
    table.add({d, variance, mean(gaps), mean(raw.entropies), mean(raw.largest), median(raw.traces),
               median(raw.gradients), mean(scaled.entropies), mean(scaled.largest), median(scaled.traces),
               median(scaled.gradients)});
    const double values[] = {median(raw.traces), median(scaled.traces), mean(raw.entropies),
                             mean(scaled.entropies)};
    for (size_t c = 0; c < curves.size(); ++c) {
      curves[c].x.push_back(static_cast<double>(d));
      curves[c].y.push_back(values[c]);
    }
  }
  const size_t last = table.rows.size() - 1;
  bool saturates = true;
  double flattest = 0, steepest = 0;
  for (size_t row = 1; row <= last; ++row) {
    saturates = saturates && table.number(row, "max p") > table.number(row - 1, "max p") &&
                table.number(row, "median tr J") < table.number(row - 1, "median tr J");
    for (const char* column : {"H / ln n", "max p", "median tr J"}) {
      const std::string name = std::string("scaled: ") + column;
      flattest = std::max(flattest, std::abs(table.number(row, name) - table.number(0, name)));
      steepest = std::max(steepest, std::abs(table.number(row, column) - table.number(0, column)));
    }
  }
  std::vector<double> gradients[2], until[2];
  Table gradient_table = first_gradients(options, gradients);
  const int64_t steps = options.size(200, 120);
  Table training_table = trained(options, steps, until);
  Result result;
  result.findings = {
      {"The variance of q.k grows as d_k.", std::string(kSeries) + ", 2.5",
       say("from %.1f at d_k = 4 to %.0f at 1024; each within four standard errors of d_k: %s",
           table.number(0, "var(q.k)"), table.number(last, "var(q.k)"), variance_is_d ? "yes" : "no"),
       decided(variance_is_d)},
      {"Without the scale softmax turns into argmax as d_k grows, and its gradient vanishes.",
       std::string(kSeries) + ", 2.5; " + kEssence + ", 1.2",
       say("mean largest weight %.2f to %.2f, median tr J %.2f to %.4f, median gradient of q %.2g to %.2g",
           table.number(0, "max p"), table.number(last, "max p"), table.number(0, "median tr J"),
           table.number(last, "median tr J"), table.number(0, "median |dq|"),
           table.number(last, "median |dq|")),
       decided(saturates && table.number(last, "max p") > 0.9 && table.number(last, "median tr J") < 0.01)},
      {"Divided by sqrt(d_k), what softmax does no longer depends on d_k.",
       std::string(kSeries) + ", 2.5; " + kFirstArticle + ", 2.3",
       say("over all d_k the scaled columns move by %.3f at most, the unscaled ones by %.3f", flattest,
           steepest),
       decided(flattest < 0.05 * steepest)},
      {"Without the scale hardly a gradient reaches W_Q when training begins.",
       std::string(kSeries) + ", 2.5",
       say("d_k = 256: |dW_Q| %s unscaled, %s scaled", shown(spread(gradients[0]), 4).c_str(),
           shown(spread(gradients[1]), 4).c_str()),
       larger(gradients[1], gradients[0])},
      {"Without the scale a model with large heads learns later.", std::string(kSeries) + ", 2.5",
       say("d_k = 256: 95 %% of the letters after %s steps unscaled (%lld: not yet), %s scaled",
           shown(spread(until[0]), 0).c_str(), static_cast<long long>(steps),
           shown(spread(until[1]), 0).c_str()),
       larger(until[0], until[1])}};
  result.notes = {
      "tr J = 1 - sum of p^2 is the trace of softmax's Jacobian diag(p) - p p^T; at 0 no gradient passes.",
      "|dq| is the gradient that reaches q when one from N(0, 1) reaches each weight.",
      "The scale divides gradients, too: where nothing saturates, |dW_Q| is sqrt(d_k) times as large without "
      "it."};
  result.plots = {
      {"softmax against d_k, with and without 1 / sqrt(d_k)", "d_k", "", true, false, {}, curves}};
  result.tables = {std::move(table), std::move(gradient_table), std::move(training_table)};
  return result;
}

}  // namespace regard::lab
