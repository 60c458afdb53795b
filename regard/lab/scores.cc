#include "regard/layer/score.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/small_model.h"
#include "regard/lab/tensors.h"

// The score functions: what each can tell apart, what it costs, and how it learns at several sizes (after the
// comparison of Britz et al. 2017, arXiv 1703.03906, section 4.5).
namespace regard::lab {
namespace {

using layer::ScoreKind;

constexpr ScoreKind kKinds[] = {ScoreKind::dot,          ScoreKind::scaled_dot, ScoreKind::cosine,
                                ScoreKind::general,      ScoreKind::additive,   ScoreKind::concat,
                                ScoreKind::concat_linear};
constexpr int64_t kLength = 16;
constexpr int64_t kVocabulary = 16;

// The weights of one head, through values that are one-hot.
at::Tensor weights_of(const layer::Score& score, const at::Tensor& q, const at::Tensor& k) {
  const at::Tensor values = at::eye(k.size(2)).view({1, 1, k.size(2), k.size(2)});
  return score.forward(q, k, values)[0][0];
}

// How much rows of weights differ: the largest difference of any key's weight between two queries.
double row_spread(const at::Tensor& weights) {
  return (weights.amax(0) - weights.amin(0)).max().item<double>();
}

// What each score makes of random queries, before any training.
Table untrained(const Options& options, double& linear_spread, double& least_other) {
  Table table{
      "scores-rows",
      "weights of 32 random queries over 32 keys of size 64: do rows differ?",
      {text("score"), count("seed"), number("difference between rows", 6), number("largest weight", 3)},
      {}};
  const at::NoGradGuard no_gradients;
  linear_spread = 0;
  least_other = 1;
  for (const ScoreKind kind : kKinds) {
    for (int64_t seed = 0; seed < options.seeds; ++seed) {
      at::manual_seed(static_cast<uint64_t>(seed));
      const layer::Score score(layer::ScoreOptions{.kind = kind, .heads = 1, .query_size = 64});
      Draws draws(static_cast<uint64_t>(seed), 3);
      const at::Tensor q = normal(draws, {1, 1, 32, 64}, at::kFloat);
      const at::Tensor k = normal(draws, {1, 1, 32, 64}, at::kFloat);
      const at::Tensor weights = weights_of(score, q, k);
      const double between = row_spread(weights);
      table.add({std::string(layer::name(kind)), seed, between, weights.max().item<double>()});
      if (kind == ScoreKind::concat_linear) {
        linear_spread = std::max(linear_spread, between);
      } else {
        least_other = std::min(least_other, between);
      }
    }
  }
  return table;
}

// A query twice as long: the dot product doubles, the cosine stays. And what a bare cosine can reach.
Table cosine_table(double& dot_factor, double& cosine_moved, bool& bounded) {
  Table table{"scores-cosine",
              "cosines as logits: the largest weight that one key of n can have, key aligned, others opposed",
              {count("keys"), number("bare cosine", 4), number("bound e^2 / (e^2 + n - 1)", 4),
               number("tau = 0.1", 4)},
              {}};
  bounded = true;
  for (const int64_t n : {4, 16, 64, 256, 1024}) {
    at::Tensor cosines = at::full({n}, -1.0, at::kDouble);
    cosines[0] = 1;
    const double bare = cosines.softmax(-1)[0].item<double>();
    const double limit = std::exp(2.0) / (std::exp(2.0) + static_cast<double>(n - 1));
    bounded = bounded && bare <= limit + 1e-12;
    table.add({n, bare, limit, (cosines / 0.1).softmax(-1)[0].item<double>()});
  }
  Draws draws(0, 4);
  const at::Tensor q = normal(draws, {64});
  const at::Tensor k = normal(draws, {64});
  const auto cosine = [&](const at::Tensor& a) {
    return ((a * k).sum() / (a.norm() * k.norm())).item<double>();
  };
  dot_factor = ((2 * q * k).sum() / (q * k).sum()).item<double>();
  cosine_moved = std::abs(cosine(2 * q) - cosine(q));
  return table;
}

struct Outcome {
  std::vector<double> accuracy;
  std::vector<double> steps;  // until 95 % of a batch is right; all of them where it never was
  std::vector<double> seconds;
};

}  // namespace

Result measure_scores(const Options& options) {
  double linear_spread = 0, least_other = 0, dot_factor = 0, cosine_moved = 0;
  bool bounded = false;
  Table rows = untrained(options, linear_spread, least_other);
  Table cosines = cosine_table(dot_factor, cosine_moved, bounded);

  const int64_t steps = options.size(200, 120);
  std::vector<int64_t> sizes =
      options.quick ? std::vector<int64_t>{16, 256} : std::vector<int64_t>{16, 64, 256, 1024};
  Table table{
      "scores",
      say("reversing %lld random letters by one head, %lld steps of 32: share right, and the step at which "
          "95 %% were",
          static_cast<long long>(kLength), static_cast<long long>(steps)),
      {text("score"), count("d_k"), number("accuracy", 3), number("spread", 3), number("steps to 95 %", 0),
       number("ms a step", 2)},
      {}};
  std::map<ScoreKind, std::map<int64_t, Outcome>> found;
  for (const ScoreKind kind : kKinds) {
    for (const int64_t size : sizes) {
      options.tell(say("%s, d_k = %lld", layer::name(kind), static_cast<long long>(size)));
      Outcome& outcome = found[kind][size];
      for (int64_t seed = 0; seed < options.seeds; ++seed) {
        SmallModel model({.vocabulary = kVocabulary,
                          .classes = kVocabulary,
                          .length = kLength,
                          .key_size = size,
                          .score = kind,
                          .feed_forward = false,
                          .seed = static_cast<uint64_t>(seed)});
        const Reversing learned = learn_to_reverse(model, steps);
        outcome.seconds.push_back(learned.seconds);
        outcome.accuracy.push_back(learned.accuracy);
        outcome.steps.push_back(learned.steps);
      }
      const Spread right = spread(outcome.accuracy);
      table.add({std::string(layer::name(kind)), size, right.mean, right.deviation,
                 spread(outcome.steps).mean, 1000 * median(outcome.seconds)});
    }
  }
  const int64_t large = 256;
  std::vector<Verdict> additive_better;
  std::string additive_words;
  for (const int64_t size : sizes) {
    const auto& additive = found[ScoreKind::additive][size];
    const auto& scaled = found[ScoreKind::scaled_dot][size];
    additive_better.push_back(larger(scaled.steps, additive.steps));
    additive_words += say("%sd_k = %lld: %s steps to 95 %% against %s", additive_words.empty() ? "" : "; ",
                          static_cast<long long>(size), shown(spread(additive.steps), 0).c_str(),
                          shown(spread(scaled.steps), 0).c_str());
  }
  const auto& dot_large = found[ScoreKind::dot][large];
  const auto& scaled_large = found[ScoreKind::scaled_dot][large];
  const auto& linear_large = found[ScoreKind::concat_linear][large];
  Result result;
  result.findings = {
      {"w^T [q; k] is a similarity of q and k.", std::string(kSeries) + ", 2.3",
       say("w's part for q is the same for all keys and softmax takes it away: rows differ by %.0e (other "
           "scores: by %.2f or "
           "more), and it reverses %.0f %% of the letters where scaled dot has %.0f %%",
           linear_spread, least_other, 100 * spread(linear_large.accuracy).mean,
           100 * spread(scaled_large.accuracy).mean),
       decided(linear_spread > 1e-5)},
      {"The dot product is the cosine of the angle.", std::string(kEssence) + ", 1.2",
       say("with q twice as long it is %.1f times as large, the cosine moves by %.0e; cosines alone as "
           "logits give one key of "
           "1024 at most %.4f",
           dot_factor, cosine_moved, cosines.number(4, "bound e^2 / (e^2 + n - 1)")),
       decided(std::abs(dot_factor - 1) < 1e-6 && bounded)},
      {"Without the scale a dot product learns worse at large sizes.", std::string(kSeries) + ", 2.3 and 2.5",
       say("d_k = 256: %s steps to 95 %%, scaled %s", shown(spread(dot_large.steps), 0).c_str(),
           shown(spread(scaled_large.steps), 0).c_str()),
       larger(dot_large.steps, scaled_large.steps)},
      {"Additive scores are slightly but consistently better than scaled dot products.",
       std::string(kSeries) + ", 2.3", additive_words, all_of(additive_better)},
      {"Dot products cost less than additive scores.", std::string(kSeries) + ", 1.1",
       say("a step at d_k = 256: %.1f ms against %.1f ms", 1000 * median(scaled_large.seconds),
           1000 * median(found[ScoreKind::additive][large].seconds)),
       larger(found[ScoreKind::additive][large].seconds, scaled_large.seconds)}};
  std::vector<std::string> names;
  std::vector<Curve> bars;
  for (const int64_t size : sizes) {
    Curve bar{say("d_k = %lld", static_cast<long long>(size)), {}, {}};
    for (const ScoreKind kind : kKinds) bar.y.push_back(spread(found[kind][size].accuracy).mean);
    bars.push_back(std::move(bar));
  }
  for (const ScoreKind kind : kKinds) names.emplace_back(layer::name(kind));
  result.plots = {{"share of letters reversed", "", "", false, false, names, bars}};
  result.notes = {
      "One head, one layer, no feed-forward: the score alone must find the other end. Where 95 % was not "
      "reached the "
      "steps are all of them."};
  result.tables = {std::move(rows), std::move(cosines), std::move(table)};
  return result;
}

}  // namespace regard::lab
