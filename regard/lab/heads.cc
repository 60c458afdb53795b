#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "regard/autograd/attention.h"
#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/one_thread.h"
#include "regard/lab/small_model.h"
#include "regard/lab/tensors.h"
#include "regard/layer/multi_head.h"

// One width, more and more heads: a task in which each place needs four others at once, learned from few
// examples, so that what is learned by heart shows.
namespace regard::lab {
namespace {

constexpr int64_t kLength = 16;
constexpr int64_t kVocabulary = 8;
constexpr int64_t kWidth = 64;
constexpr int64_t kSources = 4;

// Each position must tell the letters before and behind it, at the mirrored place and half a text away.
Batch gathering(Reversals& task, int64_t batch) {
  const at::Tensor ids = task.next(batch).ids;
  return {ids, at::stack({ids.roll(1, 1), ids.roll(-1, 1), ids.flip(1), ids.roll(kLength / 2, 1)}, -1)};
}

struct Outcome {
  std::vector<double> training, validation, gap;
};

double thread_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// What a head costs among so many; slower: of each count that is no multiple of 8, whether more than among 8.
Table speed(std::vector<Verdict>& slower) {
  Table table{"heads-speed",
              "ms a head of attention over 512 positions, heads of 64, one thread, by its processor time",
              {count("heads"), number("ms a head", 4), number("spread", 4)},
              {}};
  const OneThread one_thread;
  const at::NoGradGuard no_gradients;
  Draws draws(0, 9);
  std::map<int64_t, at::Tensor> inputs;
  for (const int64_t heads : {6, 7, 8, 9, 12, 16})
    inputs[heads] = normal(draws, {1, heads, 512, 64}, at::kFloat);
  std::map<int64_t, std::vector<double>> found;
  for (int round = 0; round < 10; ++round) {  // by turns: what else the machine does meets all alike
    for (const auto& [heads, x] : inputs) {
      const double begin = thread_milliseconds();
      autograd::attention({}, x, x, x);
      if (round > 0) found[heads].push_back((thread_milliseconds() - begin) / static_cast<double>(heads));
    }
  }
  for (const auto& [heads, times] : found) table.add({heads, spread(times).mean, spread(times).deviation});
  for (const int64_t heads : {6, 7, 9, 12}) slower.push_back(larger(found[heads], found[8]));
  return table;
}

}  // namespace

Result measure_heads(const Options& options) {
  const int64_t steps = options.size(300, 150);
  const int64_t examples = 96;
  const std::vector<int64_t> counts =
      options.quick ? std::vector<int64_t>{1, 4, 16} : std::vector<int64_t>{1, 2, 4, 8, 16};
  const std::vector<double> rates =
      options.quick ? std::vector<double>{0, 0.3} : std::vector<double>{0, 0.1, 0.3};
  Table table{
      "heads",
      say("width %lld, one layer, %lld texts to learn from, %lld steps: share of right letters",
          static_cast<long long>(kWidth), static_cast<long long>(examples), static_cast<long long>(steps)),
      {count("heads"), number("dropout", 1), number("training", 3), number("validation", 3),
       number("spread", 3), number("gap", 3), number("spread ", 3)},
      {}};
  std::map<std::pair<double, int64_t>, Outcome> found;
  std::vector<Curve> curves;
  for (const double rate : rates) {
    Curve curve{say("dropout %.1f", rate), {}, {}};
    for (const int64_t heads : counts) {
      options.tell(say("%lld heads, dropout %.1f", static_cast<long long>(heads), rate));
      Outcome& outcome = found[{rate, heads}];
      for (int64_t seed = 0; seed < options.seeds; ++seed) {
        SmallModel model({.vocabulary = kVocabulary,
                          .classes = kSources * kVocabulary,
                          .length = kLength,
                          .width = kWidth,
                          .heads = heads,
                          .dropout = rate,
                          .seed = static_cast<uint64_t>(seed)});
        Reversals task(kLength, kVocabulary, static_cast<uint64_t>(seed), 0);
        const Batch seen = gathering(task, examples);
        const Batch unseen = gathering(task, 128);
        int64_t at = 0;
        const auto next = [&] {
          const int64_t size = 32;
          const Batch batch{seen.ids.narrow(0, at % examples, size),
                            seen.targets.narrow(0, at % examples, size)};
          at += size;
          return batch;
        };
        SmallTraining training;
        training.steps = steps;
        train_small(model, next, training);
        outcome.training.push_back(accuracy(model, seen));
        outcome.validation.push_back(accuracy(model, unseen));
        outcome.gap.push_back(outcome.training.back() - outcome.validation.back());
      }
      const Spread validation = spread(outcome.validation);
      const Spread gap = spread(outcome.gap);
      table.add({heads, rate, spread(outcome.training).mean, validation.mean, validation.deviation, gap.mean,
                 gap.deviation});
      curve.x.push_back(static_cast<double>(heads));
      curve.y.push_back(validation.mean);
    }
    curves.push_back(std::move(curve));
  }
  // The best count without dropout, beside one head and beside most heads.
  int64_t best = counts.front();
  for (const int64_t heads : counts) {
    if (spread(found[{0, heads}].validation).mean > spread(found[{0, best}].validation).mean) best = heads;
  }
  std::string refusal = "it was not refused";
  try {
    layer::MultiHead(layer::MultiHeadOptions{.width = kWidth, .heads = 5});
  } catch (const std::invalid_argument& error) {
    refusal = error.what();
  }
  const auto& one = found[{0, 1}];
  const auto& most = found[{0, counts.back()}];
  const auto& dropped = found[{rates.back(), counts.back()}];
  Result result;
  result.findings = {
      {"Several heads see what one cannot.", std::string(kEssence) + ", 2.1 and 2.2",
       say("validation without dropout: one head %s, %lld heads %s", shown(spread(one.validation), 3).c_str(),
           static_cast<long long>(best), shown(spread(found[{0, best}].validation), 3).c_str()),
       larger(found[{0, best}].validation, one.validation)},
      {"Too many heads overfit.", std::string(kEssence) + ", 2.2",
       say("gap between training and validation: %lld heads %s, %lld heads %s",
           static_cast<long long>(counts.back()), shown(spread(most.gap), 3).c_str(),
           static_cast<long long>(best), shown(spread(found[{0, best}].gap), 3).c_str()),
       best == counts.back() ? Verdict::not_decided : larger(most.gap, found[{0, best}].gap)},
      {"Dropout closes the gap between training and validation.", std::string(kEssence) + ", 2.2",
       say("%lld heads: %s without, %s with %.1f", static_cast<long long>(counts.back()),
           shown(spread(most.gap), 3).c_str(), shown(spread(dropped.gap), 3).c_str(), rates.back()),
       larger(most.gap, dropped.gap)},
      {"The number of heads must divide the width.", std::string(kEssence) + ", 2.2", "64 and 5: " + refusal,
       decided(refusal != "it was not refused")}};
  std::vector<Verdict> slower;
  Table speed_table = speed(slower);
  result.findings.push_back(
      {"The number of heads should be a multiple of 8.", std::string(kEssence) + ", 2.2",
       say("any divisor of the width is taken; a head of 64 costs %.3f ms among 7, %.3f among 8, %.3f among "
           "9 "
           "(slower than among 8 beyond the spread: %lld of %lld counts)",
           speed_table.number(1, "ms a head"), speed_table.number(2, "ms a head"),
           speed_table.number(3, "ms a head"),
           static_cast<long long>(std::count(slower.begin(), slower.end(), Verdict::confirmed)),
           static_cast<long long>(slower.size())),
       std::count(slower.begin(), slower.end(), Verdict::confirmed) == 0 ? Verdict::refuted
                                                                         : all_of(slower)});
  if (!options.quick) {
    std::string all;
    std::vector<Verdict> better;
    for (const int64_t heads : counts) {
      const auto& other = found[{0, heads}].validation;
      all += say("%s%lld: %s", all.empty() ? "" : ", ", static_cast<long long>(heads),
                 shown(spread(other), 3).c_str());
      if (heads != 8) better.push_back(larger(found[{0, 8}].validation, other));
    }
    result.findings.push_back({"8 heads are best.", std::string(kEssence) + ", 2.2",
                               "validation without dropout by heads: " + all, all_of(better)});
  }
  result.notes = {
      "A number of heads that is no multiple of 8 is a note of 'regard train', not an error.",
      say("The task needs %lld places at once, so that as many heads suffice in one layer; how many a "
          "language "
          "needs is another question.",
          static_cast<long long>(kSources))};
  result.plots = {{"validation against heads", "heads", "share right", true, false, {}, curves}};
  result.tables = {std::move(table), std::move(speed_table)};
  return result;
}

}  // namespace regard::lab
