#include "bench/translate_bench.h"

#include <ATen/Parallel.h>

#include <array>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "bench/torch_translator.h"
#include "regard/io/model_folder.h"
#include "regard/model/load_translator.h"
#include "regard/model/weight_file.h"
#include "regard/text/load.h"
#include "regard/text/train_vocabulary.h"
#include "regard/train/evaluate.h"
#include "regard/train/loop.h"
#include "regard/train/translation.h"

namespace regard::bench {
namespace {

using Numbers = std::map<std::string, double>;  // a line of a CSV, by its header; empty cells are left out

std::vector<Numbers> read_csv(const std::filesystem::path& path) {
  std::ifstream file(path);
  const auto cells = [](const std::string& line) {
    std::vector<std::string> out;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, ',');) out.push_back(cell);
    return out;
  };
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> header = cells(line);
  std::vector<Numbers> out;
  while (std::getline(file, line)) {
    Numbers& row = out.emplace_back();
    const std::vector<std::string> values = cells(line);
    for (size_t i = 0; i < values.size(); ++i)
      if (!values[i].empty()) row[header.at(i)] = std::stod(values[i]);
  }
  return out;
}

const train::TranslatorRecipe& translator_of(const train::Recipe& recipe) {
  const auto* translator = std::get_if<train::TranslatorRecipe>(&recipe.task);
  if (translator == nullptr || !std::holds_alternative<model::TransformerTranslatorConfig>(translator->model))
    throw std::invalid_argument(
        "the recipe must be of a Transformer that translates: kind = \"translator\", model.architecture = "
        "\"transformer\"");
  if (recipe.train.bf16)
    throw std::invalid_argument("train.precision is \"bf16\"; libtorch's modules multiply in f32");
  return *translator;
}

// One of the two models in training.
struct Side {
  std::string name;
  std::filesystem::path folder;
  std::unique_ptr<train::Translation> task{};
  int64_t steps = 0;  // done
  bool done = false;
};

class Bench {
 public:
  explicit Bench(const TranslateBench& options)
      : options_(options),
        recipe_(translator_of(options.recipe)),
        config_(std::get<model::TransformerTranslatorConfig>(recipe_.model)) {
    check_torch_translator(config_);
    if (!options.test.empty()) texts_ = train::read_parallel_text(options.test, recipe_.data.swap);
    Side& ours = sides_[0];
    ours = {.name = "regard", .folder = options.folder / "regard"};
    ours.task = std::make_unique<train::Translation>(recipe_, options.recipe.train, ours.folder);
    train::TranslatorRecipe same = recipe_;
    if (!same.data.generated && same.data.tokenizer.empty()) same.data.tokenizer = ours.folder.string();
    if (options.test.empty()) texts_ = train::read_texts(same.data, ours.folder).valid;
    if (texts_.empty()) throw std::invalid_argument("data.valid is missing, and no other test is given");
    Side& peer = sides_[1];
    peer = {.name = "libtorch", .folder = options.folder / "libtorch"};
    peer.task = std::make_unique<train::Translation>(
        same, options.recipe.train, peer.folder, [&](const model::WeightSource& weights, int64_t vocabulary) {
          config_.vocabulary = vocabulary;
          auto made = std::make_unique<TorchTranslator>(config_, weights);
          made->begin_as(ours.task->parameters());
          return made;
        });
  }

  // Whether both were trained to the end.
  bool train() {
    while (!sides_[0].done || !sides_[1].done) {
      for (Side& side : sides_) {
        if (!side.done) turn(side);
        if (options_.stop && options_.stop()) return false;
      }
    }
    return true;
  }

  std::vector<nlohmann::ordered_json> rows() const { return {row(sides_[0]), row(sides_[1])}; }

 private:
  void turn(Side& side) {
    int64_t made = 0;
    train::Listener listener;
    listener.step = [&](const train::StepReport& report) {
      ++made;
      side.steps = report.step;
      if (options_.trained) options_.trained(sides_[0].steps + sides_[1].steps, 2 * report.steps);
    };
    listener.stop = [&] { return made >= options_.turn || (options_.stop && options_.stop()); };
    const train::Outcome outcome = train::train(*side.task, options_.recipe, side.folder, listener);
    side.steps = outcome.step;
    side.done = outcome.ending != train::Ending::stopped;
  }

  nlohmann::ordered_json row(const Side& side) const {
    nlohmann::ordered_json row;
    row["op"] = "train_translator";
    row["model"] = side.name;
    int64_t parameters = 0;
    for (const auto& named : side.task->parameters()) parameters += named.value.numel();
    row["parameters"] = parameters;
    row["threads"] = at::get_num_threads();
    row["steps"] = side.steps;
    double tokens = 0, seconds = 0;
    for (const Numbers& step : read_csv(side.folder / "log.csv")) {
      tokens += step.at("tokens");
      seconds += step.at("seconds");
    }
    row["tokens"] = static_cast<int64_t>(tokens);
    row["seconds"] = seconds;
    row["tokens_per_second"] = tokens / seconds;
    for (const Numbers& validation : read_csv(side.folder / "validation.csv"))
      if (validation.at("best") == 1) row["valid_loss"] = validation.at("loss");
    model::LoadedTranslator translator = load(side);
    const train::TranslationQuality found =
        train::evaluate(
            translator, texts_,
            {.beam = options_.beam, .bleu_tokens = recipe_.data.bleu_tokens, .progress = options_.translated})
            .all;
    row["test_texts"] = found.texts;
    row["beam"] = options_.beam;
    row["test_bleu"] = found.bleu;
    row["test_chrf"] = found.chrf;
    row["test_accuracy"] = found.accuracy;
    row["test_loss"] = found.loss;
    return row;
  }

  // The model that a training kept. Ours as everybody reads it; libtorch's has parameters of its own.
  model::LoadedTranslator load(const Side& side) const {
    if (&side == &sides_[0]) return model::load_translator(side.folder.string());
    const auto folder = std::make_shared<const io::ModelFolder>(io::ModelFolder::open(side.folder));
    model::LoadedTranslator loaded;
    loaded.name = side.name;
    loaded.model = std::make_unique<TorchTranslator>(config_, model::WeightFile(folder));
    loaded.tokenizer = text::load_tokenizer(*folder);
    loaded.bos = text::kBosId;
    loaded.eos = text::kEosId;
    loaded.pad = text::kPadId;
    return loaded;
  }

  const TranslateBench& options_;
  const train::TranslatorRecipe& recipe_;
  model::TransformerTranslatorConfig config_;
  std::vector<train::TextPair> texts_;  // of the test
  std::array<Side, 2> sides_;           // ours, libtorch's
};

}  // namespace

std::vector<nlohmann::ordered_json> translate_bench(const TranslateBench& options) {
  Bench bench(options);
  if (!bench.train()) return {};
  return bench.rows();
}

}  // namespace regard::bench
