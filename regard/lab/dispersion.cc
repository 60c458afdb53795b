#include <algorithm>
#include <cmath>

#include "regard/lab/columns.h"
#include "regard/lab/distribution.h"
#include "regard/lab/draws.h"
#include "regard/lab/measures.h"

// What becomes of one relevant key among more and more others, and two cures (variants of softmax's
// temperature): log-n scaling (Su 2021, kexue.fm/archives/8823) and the entropy polynomial of Velickovic et
// al. 2024 (arXiv 2410.01104, "softmax is not enough").
namespace regard::lab {
namespace {

constexpr double kLogit = 6;            // of the relevant key; the others' are from N(0, 1)
constexpr int64_t kTrainedLength = 64;  // of log-n scaling

// The paper's coefficients, the highest power first; they hold above an entropy of 0.5 nats.
double polynomial(double entropy, bool wrong_order) {
  constexpr double kCoefficients[] = {-0.037, 0.481, -2.3, 4.917, -1.791};
  double sum = 0;
  for (size_t i = 0; i < std::size(kCoefficients); ++i)
    sum = sum * entropy + kCoefficients[wrong_order ? std::size(kCoefficients) - 1 - i : i];
  return sum;
}

double factor_by_entropy(double entropy, bool wrong_order) {
  return entropy > 0.5 ? std::max(1.0, polynomial(entropy, wrong_order)) : 1.0;
}

}  // namespace

Result measure_dispersion(const Options& options) {
  const int64_t draws = options.size(200, 50);
  const int64_t longest = options.size(4096, 4096);
  Table table{"dispersion",
              say("one key with logit %.0f among n - 1 with logits from N(0, 1), mean of %lld draws: weight "
                  "of the key "
                  "and entropy in nats",
                  kLogit, static_cast<long long>(draws * options.seeds)),
              {count("n"), number("plain: weight", 3), number("plain: entropy", 2),
               number("log-n: weight", 2), number("log-n: entropy", 2), number("polynomial: weight", 3),
               number("wrong order: weight", 3), number("bound e^gap / n", 3)},
              {}};
  Curve plain_curve{"plain", {}, {}}, log_curve{"log-n", {}, {}}, poly_curve{"polynomial", {}, {}};
  bool bounded = true;
  for (int64_t n = 16; n <= longest; n *= 4) {
    options.tell(say("n = %lld", static_cast<long long>(n)));
    double sums[6] = {};
    double bound = 0;
    for (int64_t seed = 0; seed < options.seeds; ++seed) {
      Draws random(static_cast<uint64_t>(seed), static_cast<uint64_t>(n));
      for (int64_t draw = 0; draw < draws; ++draw) {
        std::vector<double> logits = random.normals(n);
        logits[0] = kLogit;
        const std::vector<double> plain = softmax(logits);
        const double h = entropy(plain);
        const double log_factor =
            std::log(static_cast<double>(n)) / std::log(static_cast<double>(kTrainedLength));
        const std::vector<double> by_log = softmax(logits, log_factor);
        const double values[6] = {plain[0],
                                  h,
                                  by_log[0],
                                  entropy(by_log),
                                  softmax(logits, factor_by_entropy(h, false))[0],
                                  softmax(logits, factor_by_entropy(h, true))[0]};
        for (size_t i = 0; i < std::size(values); ++i)
          sums[i] += values[i] / static_cast<double>(draws * options.seeds);
        const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
        const double limit = std::exp(*high - *low) / static_cast<double>(n);
        bounded = bounded && plain[0] <= limit;
        bound += limit / static_cast<double>(draws * options.seeds);
      }
    }
    table.add({n, sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], bound});
    for (auto* curve : {&plain_curve, &log_curve, &poly_curve}) curve->x.push_back(static_cast<double>(n));
    plain_curve.y.push_back(sums[0]);
    log_curve.y.push_back(sums[2]);
    poly_curve.y.push_back(sums[4]);
  }
  const size_t last = table.rows.size() - 1;
  bool falls = true;
  double low_entropy = INFINITY, high_entropy = 0;
  for (size_t row = 0; row <= last; ++row) {
    falls =
        falls && (row == 0 || table.number(row, "plain: weight") < table.number(row - 1, "plain: weight"));
    low_entropy = std::min(low_entropy, table.number(row, "log-n: entropy"));
    high_entropy = std::max(high_entropy, table.number(row, "log-n: entropy"));
  }
  const double grown = table.number(last, "plain: entropy") - table.number(0, "plain: entropy");
  Result result;
  result.findings = {
      {"With bounded logits softmax must spread its weight as the text grows.",
       std::string(kSeries) + ", 2.4",
       say("the key's weight falls from %.2f to %.3f, entropy rises from %.2f to %.2f nats; every weight "
           "keeps below "
           "e^gap / n: %s",
           table.number(0, "plain: weight"), table.number(last, "plain: weight"),
           table.number(0, "plain: entropy"), table.number(last, "plain: entropy"), bounded ? "yes" : "no"),
       decided(falls && bounded)},
      {"A factor of log n keeps the entropy the same at every length.", std::string(kSeries) + ", 2.5",
       say("entropy between %.2f and %.2f nats (plain: it grows by %.2f), the key's weight %.2f at n = %lld",
           low_entropy, high_entropy, grown, table.number(last, "log-n: weight"),
           static_cast<long long>(longest)),
       decided(high_entropy - low_entropy < 0.1 * grown)},
      {"A temperature chosen by entropy, by the published polynomial, cures it.",
       std::string(kSeries) + ", 2.5",
       say("weight %.2f at n = 256 and %.2f at 1024, but %.3f at 4096, as plain (%.3f): beyond about 6 nats "
           "the polynomial "
           "is below 1. In the wrong order of powers: %.2f at 256",
           table.number(2, "polynomial: weight"), table.number(3, "polynomial: weight"),
           table.number(last, "polynomial: weight"), table.number(last, "plain: weight"),
           table.number(2, "wrong order: weight")),
       decided(table.number(last, "polynomial: weight") > 1.5 * table.number(last, "plain: weight"))}};
  result.plots = {
      {"weight of the relevant key", "keys", "", true, false, {}, {plain_curve, log_curve, poly_curve}}};
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace regard::lab
