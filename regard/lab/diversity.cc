#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/small_model.h"

// The third article's diversity_loss, added with either sign.
namespace regard::lab {
namespace {

constexpr int64_t kLength = 16;
constexpr int64_t kVocabulary = 16;

// mean (A - mean over heads of A)^2, as the article has it: 0 where all heads are equal.
at::Tensor diversity(const std::vector<at::Tensor>& maps) {
  at::Tensor sum = at::zeros({});
  for (const at::Tensor& map : maps) sum = sum + (map - map.mean(1, true)).square().mean();
  return sum;
}

}  // namespace

Result measure_diversity(const Options& options) {
  const int64_t steps = options.size(400, 80);
  const double weight = 10;  // entries of A are of the order 1 / n, D of 1 / n^2
  struct Case {
    const char* name;
    double sign;
  };
  const Case cases[] = {{"loss + weight D", 1}, {"no term", 0}, {"loss - weight D", -1}};
  Table table{"diversity",
              say("four heads reverse %lld letters, %lld steps: D (0: all heads alike) and the share right",
                  static_cast<long long>(kLength), static_cast<long long>(steps)),
              {text("case"), number("D at first", 5), number("D at last", 5), number("spread", 5),
               number("accuracy", 3)},
              {}};
  std::vector<double> last[3];
  std::vector<std::string> names;
  Curve bar{"D at last", {}, {}};
  for (size_t c = 0; c < std::size(cases); ++c) {
    options.tell(cases[c].name);
    std::vector<double> first, right;
    for (int64_t seed = 0; seed < options.seeds; ++seed) {
      SmallModel model({.vocabulary = kVocabulary,
                        .classes = kVocabulary,
                        .length = kLength,
                        .heads = 4,
                        .seed = static_cast<uint64_t>(seed)});
      Reversals task(kLength, kVocabulary, static_cast<uint64_t>(seed), 0);
      const Batch test = Reversals(kLength, kVocabulary, static_cast<uint64_t>(seed), 1).next(64);
      const auto measured = [&] {
        const at::NoGradGuard no_gradients;
        std::vector<at::Tensor> maps;
        model.forward(test.ids, -1, &maps);
        return diversity(maps).item<double>();
      };
      first.push_back(measured());
      SmallTraining training;
      training.steps = steps;
      training.term = [&](const std::vector<at::Tensor>& maps) {
        return cases[c].sign * weight * diversity(maps);
      };
      train_small(
          model, [&] { return task.next(32); }, training);
      last[c].push_back(measured());
      right.push_back(accuracy(model, test));
    }
    const Spread end = spread(last[c]);
    table.add({std::string(cases[c].name), spread(first).mean, end.mean, end.deviation, spread(right).mean});
    names.emplace_back(cases[c].name);
    bar.y.push_back(end.mean);
  }
  Draws draws(0, 12);
  const at::Tensor map = at::tensor(draws.normals(4 * kLength * kLength), at::kDouble)
                             .view({1, 4, kLength, kLength})
                             .softmax(-1);
  const double of_equal = diversity({map.narrow(1, 0, 1).expand({1, 4, kLength, kLength})}).item<double>();
  const double of_unequal = diversity({map}).item<double>();
  Result result;
  result.findings = {
      {"diversity_loss, added to the loss, keeps heads different.",
       std::string(kEssence) + ", 4.2, problem 2",
       say("it is %.0e for equal heads and %.1e for random ones, so that the loss falls as heads become "
           "alike: D ends at %s, "
           "without the term at %s",
           of_equal, of_unequal, shown(spread(last[0]), 5).c_str(), shown(spread(last[1]), 5).c_str()),
       larger(last[0], last[1])},
      {"Subtracted, it keeps heads different.", "the same, with the sign that it needs",
       say("D ends at %s, without the term at %s", shown(spread(last[2]), 5).c_str(),
           shown(spread(last[1]), 5).c_str()),
       larger(last[2], last[1])}};
  result.plots = {{"difference between heads after training", "", "", false, false, names, {bar}}};
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace regard::lab
