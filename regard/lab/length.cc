#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/one_thread.h"
#include "regard/model/translate.h"
#include "regard/text/train_vocabulary.h"
#include "regard/train/optimizer.h"
#include "regard/train/schedule.h"
#include "regard/train/translation.h"

// An RNN that translates, with attention plugged in and without: the same task at more and more symbols, up
// to twice the length that was trained (Bahdanau et al. 2015, arXiv 1409.0473, figure 2, in kind).
namespace regard::lab {
namespace {

using model::RnnAttention;

constexpr int64_t kShortest = 2;
constexpr int64_t kTrained = 10;  // the longest text that is learned
constexpr int64_t kSymbols = 8;
constexpr int64_t kSize = 64;  // of states, words and what lies between

struct Way {
  const char* name;
  RnnAttention attention;
};
constexpr Way kWays[] = {{"without attention", RnnAttention::none}, {"additive", RnnAttention::additive}};

train::GeneratedTask reversing(int64_t shortest, int64_t longest, uint64_t seed) {
  return {.kind = train::GeneratedTask::Kind::reverse,
          .symbols = kSymbols,
          .shortest = shortest,
          .longest = longest,
          .seed = seed};
}

std::unique_ptr<train::Translation> make_translation(RnnAttention attention, uint64_t seed) {
  train::TranslatorRecipe recipe;
  recipe.data.generated = reversing(kShortest, kTrained, seed);
  recipe.data.generated_train = 8000;
  model::RnnTranslatorConfig config;
  config.width = config.embedding = config.encoder_width = config.readout = config.attention_size = kSize;
  config.attention = attention;
  recipe.model = config;
  recipe.initialisation.kind = train::Initialisation::Kind::xavier_uniform;
  train::TrainRecipe train;
  train.seed = seed;
  train.batch_tokens = 64 * 2 * (kTrained + 1);
  return std::make_unique<train::Translation>(recipe, train, "");
}

void learn(train::Translation& translation, int64_t steps) {
  train::OptimizerOptions options;
  options.kind = train::OptimizerOptions::Kind::adam;
  train::Optimizer optimizer(options, translation.parameters());
  const train::Schedule schedule{.rate = 5e-3, .warmup = steps / 20, .steps = steps};
  for (int64_t step = 0; step < steps; ++step) {
    optimizer.zero_gradients();
    translation.loss(step).backward();
    optimizer.clip(1);
    optimizer.step(schedule.at(step));
  }
}

// The share of symbols that stand at their place in greedy translations of unseen texts of one length.
double right_symbols(train::Translation& translation, int64_t length, int64_t texts, uint64_t seed) {
  std::vector<std::vector<int64_t>> sources, targets;
  for (const train::TextPair& pair : train::generate(reversing(length, length, seed), texts, 2)) {
    const auto source = train::source_ids(translation.tokenizer(), pair.source);
    const auto target = train::target_ids(translation.tokenizer(), pair.references.front());
    sources.emplace_back(source.begin(), source.end());
    targets.emplace_back(target.begin() + 1, target.end() - 1);
  }
  model::TranslateOptions options;
  options.bos = text::kBosId;
  options.eos = text::kEosId;
  options.pad = text::kPadId;
  int64_t right = 0;
  const std::vector<model::Translation> found = model::translate(translation.model(), sources, options);
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t both = std::min(found[i].ids.size(), targets[i].size());
    for (size_t j = 0; j < both; ++j) right += found[i].ids[j] == targets[i][j] ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(texts * length);
}

}  // namespace

Result measure_length(const Options& options) {
  const OneThread one_thread;
  const int64_t steps = options.size(800, 300);
  const int64_t texts = options.size(200, 100);
  const std::vector<int64_t> lengths = {2, 4, 6, 8, kTrained, 12, 14, 16, 18, 2 * kTrained};
  std::map<RnnAttention, std::map<int64_t, std::vector<double>>> right;
  int64_t parameters[2] = {};
  for (size_t way = 0; way < 2; ++way) {
    for (int64_t seed = 0; seed < options.seeds; ++seed) {
      options.tell(say("%s, seed %lld", kWays[way].name, static_cast<long long>(seed)));
      const auto translation = make_translation(kWays[way].attention, static_cast<uint64_t>(seed));
      learn(*translation, steps);
      parameters[way] = 0;
      for (const auto& named : translation->parameters()) parameters[way] += named.value.numel();
      for (const int64_t length : lengths)
        right[kWays[way].attention][length].push_back(
            right_symbols(*translation, length, texts, static_cast<uint64_t>(seed)));
    }
  }
  auto& without = right[RnnAttention::none];
  auto& with = right[RnnAttention::additive];
  Table table{"length",
              say("a GRU translator that reverses %lld to %lld of %lld symbols, %lld steps: share of symbols "
                  "at their place, greedy",
                  static_cast<long long>(kShortest), static_cast<long long>(kTrained),
                  static_cast<long long>(kSymbols), static_cast<long long>(steps)),
              {count("length"), number("without attention", 3), number("spread", 3),
               number("additive attention", 3), number("spread ", 3)},
              {}};
  Curve curves[] = {{kWays[0].name, {}, {}}, {kWays[1].name, {}, {}}};
  for (const int64_t length : lengths) {
    const Spread one = spread(without[length]);
    const Spread other = spread(with[length]);
    table.add({length, one.mean, one.deviation, other.mean, other.deviation});
    for (Curve& curve : curves) curve.x.push_back(static_cast<double>(length));
    curves[0].y.push_back(one.mean);
    curves[1].y.push_back(other.mean);
  }
  const auto words = [](const std::vector<double>& values) { return shown(spread(values), 3); };
  const auto beside = [&](int64_t length) {
    return say("%lld symbols: %s without attention, %s with it", static_cast<long long>(length),
               words(without[length]).c_str(), words(with[length]).c_str());
  };
  // What each loses between short texts and long ones, seed by seed.
  std::vector<double> losses[2];
  for (size_t seed = 0; seed < static_cast<size_t>(options.seeds); ++seed) {
    losses[0].push_back(without[4][seed] - without[kTrained][seed]);
    losses[1].push_back(with[4][seed] - with[kTrained][seed]);
  }
  const std::string where = std::string(kFirstArticle) + "; " + kSeries + ", 1.3";
  Result result;
  result.findings = {
      {"Through one state of fixed size an RNN translator loses more the longer a text is; attention looks "
       "back.",
       where,
       say("from 4 to %lld symbols, lengths that were trained, %s of the symbols are lost without attention, "
           "%s with it",
           static_cast<long long>(kTrained), words(losses[0]).c_str(), words(losses[1]).c_str()),
       larger(losses[0], losses[1])},
      {"At the longest trained length the translator with attention is better.", where, beside(kTrained),
       larger(with[kTrained], without[kTrained])},
      {"At twice the trained length it is better, too.", where,
       beside(2 * kTrained) + say(" (guessing: %.3f)", 1.0 / kSymbols),
       larger(with[2 * kTrained], without[2 * kTrained])}};
  result.notes = {
      say("Attention is a plug-in: the rest of the model begins with the same numbers; %lld "
          "parameters without it, %lld with it.",
          static_cast<long long>(parameters[0]), static_cast<long long>(parameters[1]))};
  result.plots = {{"right symbols against length",
                   "symbols",
                   "share right",
                   false,
                   false,
                   {},
                   {std::begin(curves), std::end(curves)}}};
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace regard::lab
