#include "regard/cli/bench_translate.h"

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/translate_bench.h"
#include "regard/cli/interrupt.h"
#include "regard/cli/keep_memory.h"
#include "regard/cli/progress.h"
#include "regard/train/recipe.h"

namespace regard::cli {
namespace {

struct Options {
  std::string recipe;
  std::vector<std::string> settings;
  int64_t steps = 0;
  std::string data;
  std::string out;
  int64_t beam = 1;
  bool json = false;
};

void print(const nlohmann::ordered_json& row) {
  char valid[20] = "-", line[200];
  if (row.contains("valid_loss")) std::snprintf(valid, sizeof valid, "%.4f", row["valid_loss"].get<double>());
  std::snprintf(line, sizeof line, "%-10s%12lld%8lld%11.0f%12s%8.2f%8.2f%8.1f%%%11.4f\n",
                row["model"].get<std::string>().c_str(), row["parameters"].get<long long>(),
                row["steps"].get<long long>(), row["tokens_per_second"].get<double>(), valid,
                row["test_bleu"].get<double>(), row["test_chrf"].get<double>(),
                100 * row["test_accuracy"].get<double>(), row["test_loss"].get<double>());
  std::cout << line;
}

void run(const Options& options) {
  std::vector<std::string> settings = options.settings;
  if (options.steps > 0) settings.push_back("train.steps=" + std::to_string(options.steps));
  // Begun with the first news, so that rates are of the work that they name.
  std::optional<Progress> training, translating;
  bench::TranslateBench bench;
  bench.recipe = train::read_recipe(options.recipe, settings);
  bench.folder =
      options.out.empty() ? std::filesystem::path(options.recipe).stem().string() + "-bench" : options.out;
  bench.test = options.data;
  bench.beam = options.beam;
  bench.trained = [&](int64_t done, int64_t all) {
    if (!training) training.emplace("training", "steps");
    training->update(done, all);
  };
  bench.translated = [&, last = int64_t{0}](int64_t done, int64_t all) mutable {
    stop_if_interrupted();
    if (!translating || done < last) translating.emplace("translating", "texts");
    translating->update(last = done, all);
  };
  bench.stop = interrupted;
  keep_memory();
  catch_interrupts();
  const auto rows = bench::translate_bench(bench);
  stop_if_interrupted();
  if (options.json) {
    for (const auto& row : rows) std::cout << row.dump() << '\n';
    return;
  }
  std::cout << "model       parameters   steps   tokens/s  valid loss    BLEU    chrF    exact  test loss\n";
  for (const auto& row : rows) print(row);
  char line[120];
  std::snprintf(line, sizeof line, "tokens/s: %.2f times libtorch's; BLEU %+.2f\n",
                rows[0]["tokens_per_second"].get<double>() / rows[1]["tokens_per_second"].get<double>(),
                rows[0]["test_bleu"].get<double>() - rows[1]["test_bleu"].get<double>());
  std::cout << line;
}

}  // namespace

void add_bench_translate(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  CLI::App* translate = bench.add_subcommand(
      "translate",
      "A recipe's Transformer translator beside libtorch's nn::Transformer in one training loop, from the "
      "same numbers and on the same batches, by turns. That one has LayerNorm after each part only: add "
      "--set model.norm_place=post --set model.norm=layer to a recipe that has not");
  translate->add_option("recipe", options->recipe, "Recipe of a translator, a TOML file (see recipes/)")
      ->required()
      ->type_name("FILE");
  translate
      ->add_option("--set", options->settings, "A value of the recipe, such as train.seed=2 (repeatable)")
      ->type_name("KEY=VALUE");
  translate->add_option("--steps", options->steps, "Of each training (default: the recipe's)")
      ->check(CLI::PositiveNumber);
  translate
      ->add_option("--data", options->data,
                   "Test set: TSV of a source and its translations (default: the recipe's validation texts)")
      ->type_name("FILE");
  translate->add_option("--beam", options->beam, "Hypotheses that are followed in the test; 1: greedy")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  translate
      ->add_option(
          "--out", options->out,
          "Folder of both trainings, which go on where they were stopped (default: the recipe's name "
          "and -bench)")
      ->type_name("FOLDER");
  translate->add_flag("--json", options->json, "One JSON object for each model");
  translate->footer(
      "Example: regard bench translate recipes/tatoeba-en-fr-transformer.toml --set model.norm_place=post "
      "--set model.norm=layer --data test.tsv");
  translate->callback([options] { run(*options); });
}

}  // namespace regard::cli
