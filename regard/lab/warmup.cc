#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/small_model.h"

// Six post-norm layers, the hard case of Xiong et al. 2020 (arXiv 2002.04745), from two kinds of first
// weights, with and without warm-up: do they learn, and how even is their attention?
namespace regard::lab {
namespace {

constexpr int64_t kLength = 12;
constexpr int64_t kVocabulary = 12;

struct Case {
  const char* name;
  double deviation;  // 0: Xavier
  bool warmup;
  layer::NormPlace norm;
};
constexpr Case kCases[] = {{"Xavier, warm-up", 0, true, layer::NormPlace::post},
                           {"Xavier, no warm-up", 0, false, layer::NormPlace::post},
                           {"N(0, 0.005^2), warm-up", 0.005, true, layer::NormPlace::post},
                           {"N(0, 0.005^2), no warm-up", 0.005, false, layer::NormPlace::post},
                           {"pre-norm, Xavier, no warm-up", 0, false, layer::NormPlace::pre}};

struct Outcome {
  std::vector<double> first_entropy, last_entropy, loss;
};

double mean_entropy(const SmallModel& model, const Batch& batch) {
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> maps;
  model.forward(batch.ids, -1, &maps);
  double sum = 0;
  for (const at::Tensor& map : maps) sum += entropy_share(map) / static_cast<double>(maps.size());
  return sum;
}

}  // namespace

Result measure_warmup(const Options& options) {
  const int64_t steps = options.size(400, 150);
  const double rate = 3e-3;
  Table table{"warm-up",
              say("six layers, width 64, 4 heads, Adam at %g, %lld steps of 16 texts to reverse: entropy / "
                  "ln n and loss",
                  rate, static_cast<long long>(steps)),
              {text("case"), number("entropy at first", 3), number("entropy at last", 3), number("spread", 3),
               number("loss at last", 3), number("spread ", 3)},
              {}};
  std::vector<Outcome> found(std::size(kCases));
  std::vector<Curve> curves;
  for (size_t c = 0; c < std::size(kCases); ++c) {
    const Case& one = kCases[c];
    options.tell(one.name);
    Curve curve{one.name, {}, {}};
    for (int64_t seed = 0; seed < options.seeds; ++seed) {
      SmallModel model({.vocabulary = kVocabulary,
                        .classes = kVocabulary,
                        .length = kLength,
                        .heads = 4,
                        .layers = 6,
                        .norm = one.norm,
                        .deviation = one.deviation,
                        .seed = static_cast<uint64_t>(seed)});
      Reversals task(kLength, kVocabulary, static_cast<uint64_t>(seed), 0);
      const Batch test = Reversals(kLength, kVocabulary, static_cast<uint64_t>(seed), 1).next(32);
      found[c].first_entropy.push_back(mean_entropy(model, test));
      SmallTraining training;
      training.steps = steps;
      training.clip = 0;
      training.schedule.rate = rate;
      training.schedule.warmup = one.warmup ? steps / 3 : 0;
      double sum = 0;
      int64_t counted = 0;
      training.after = [&](int64_t step, double loss) {
        if (step > steps * 9 / 10) {
          sum += loss;
          ++counted;
        }
        if (seed == 0 && step % 5 == 0) {
          curve.x.push_back(static_cast<double>(step));
          curve.y.push_back(loss);
        }
        return true;
      };
      train_small(
          model, [&] { return task.next(16); }, training);
      found[c].last_entropy.push_back(mean_entropy(model, test));
      found[c].loss.push_back(sum / static_cast<double>(counted));
    }
    const Spread entropy = spread(found[c].last_entropy);
    const Spread loss = spread(found[c].loss);
    table.add({std::string(one.name), spread(found[c].first_entropy).mean, entropy.mean, entropy.deviation,
               loss.mean, loss.deviation});
    curves.push_back(std::move(curve));
  }
  const auto words = [&](size_t c, const std::vector<double> Outcome::*part) {
    return shown(spread(found[c].*part), 3);
  };
  // Less bad than without is not learned yet.
  const double chance = std::log(static_cast<double>(kVocabulary));
  Verdict learns = larger(found[1].loss, found[0].loss);
  if (learns == Verdict::confirmed && spread(found[0].loss).mean > chance / 2) learns = Verdict::not_decided;
  Result result;
  result.findings = {
      {"A bad initialisation makes attention even.", std::string(kEssence) + ", 4.2, problem 1",
       say("entropy / ln n before training: too small weights %s, Xavier %s",
           words(2, &Outcome::first_entropy).c_str(), words(0, &Outcome::first_entropy).c_str()),
       larger(found[2].first_entropy, found[0].first_entropy)},
      {"Warm-up lets a deep post-norm model learn where it else does not.",
       std::string(kEssence) + ", 4.2, problem 1",
       say("loss with %s, without %s; of chance: %.3f (pre-norm without: %s)",
           words(0, &Outcome::loss).c_str(), words(1, &Outcome::loss).c_str(), chance,
           words(4, &Outcome::loss).c_str()),
       learns},
      {"It also cures the even attention that too high a rate leaves.",
       std::string(kEssence) + ", 4.2, problem 1",
       say("entropy / ln n after training: Xavier with warm-up %s, without %s",
           words(0, &Outcome::last_entropy).c_str(), words(1, &Outcome::last_entropy).c_str()),
       larger(found[1].last_entropy, found[0].last_entropy)},
      {"Attention that too small weights made even stays so unless Xavier cures it.",
       std::string(kEssence) + ", 4.2, problem 1",
       say("too small weights end at %s without warm-up and at %s with it, Xavier with warm-up at %s",
           words(3, &Outcome::last_entropy).c_str(), words(2, &Outcome::last_entropy).c_str(),
           words(0, &Outcome::last_entropy).c_str()),
       larger(found[3].last_entropy, found[0].last_entropy)}};
  result.plots = {{"loss of seed 0", "step", "loss", false, false, {}, curves}};
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace regard::lab
