#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "regard/cli/interrupt.h"
#include "regard/cli/keep_memory.h"
#include "regard/cli/verbs.h"
#include "regard/train/loop.h"
#include "regard/train/make_task.h"
#include "regard/train/recipe.h"

// train: a model from a recipe.
namespace regard::cli {
namespace {

struct Train {
  std::string recipe;
  std::vector<std::string> settings;
  std::string out;
  std::string from;
  bool json = false;
};

std::string duration(double seconds) {
  char text[40];
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  }
  return text;
}

// Where a training stands, on standard error: one line that is written over on a terminal, else a line every
// ten seconds.
class Narrator {
 public:
  // units: what a pass is made of.
  Narrator(int64_t parameters, const char* units) : terminal_(isatty(STDERR_FILENO) == 1), units_(units) {
    std::cerr << parameters << " parameters\n";
  }

  void step(const train::StepReport& report) {
    seconds_ += report.seconds;
    tokens_ += report.tokens;
    ++steps_;
    since_shown_ += report.seconds;
    if (since_shown_ < (terminal_ ? 0.2 : 10.0) && report.step < report.steps) return;
    since_shown_ = 0;
    const double left =
        seconds_ / static_cast<double>(steps_) * static_cast<double>(report.steps - report.step);
    char line[200];
    std::snprintf(line, sizeof line, "step %lld of %lld  loss %.4f  rate %.2e  %.0f %s/s  %s left",
                  static_cast<long long>(report.step), static_cast<long long>(report.steps), report.loss,
                  report.rate, static_cast<double>(tokens_) / seconds_, units_, duration(left).c_str());
    std::cerr << (terminal_ ? "\r\x1b[K" : "") << line << (terminal_ ? "" : "\n") << std::flush;
  }

  void validation(int64_t step, const train::Validation& found, bool best) {
    end_line();
    char line[200];
    std::snprintf(line, sizeof line, "validation after step %lld: loss %.4f", static_cast<long long>(step),
                  found.loss);
    std::cerr << line;
    const bool of_text = found.bits_per_byte > 0;
    std::snprintf(line, sizeof line, ", perplexity %.2f, %.4f bits per byte", std::exp(found.loss),
                  found.bits_per_byte);
    if (of_text) std::cerr << line;
    const auto add = [&](const char* name, const char* format, const std::optional<double>& value) {
      if (!value) return;
      std::snprintf(line, sizeof line, format, *value);
      std::cerr << ", " << name << ' ' << line;
    };
    add("BLEU", "%.2f", found.bleu);
    add("chrF", "%.2f", found.chrf);
    add(of_text ? "exact" : "accuracy", "%.4f", found.accuracy);
    std::cerr << (best ? " (best so far)" : "") << '\n';
  }

  void alarm(int64_t step, const std::string& what) {
    end_line();
    std::cerr << "regard: after step " << step << ": " << what << '\n';
  }

  void end_line() const {
    if (terminal_) std::cerr << "\r\x1b[K";
  }

 private:
  bool terminal_;
  const char* units_;
  double seconds_ = 0;
  double since_shown_ = 1e9;
  int64_t tokens_ = 0;
  int64_t steps_ = 0;
};

// Whether products of bfloat16 are instructions here; where they are not, libtorch goes round by float32.
bool multiplies_bf16() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return true;
#endif
}

// Of the attention that a recipe trains; 0: none that has several.
int64_t heads_of(const train::LanguageModelRecipe& recipe) {
  return recipe.model.heads;
}
int64_t heads_of(const train::ClassifierRecipe& recipe) {
  return recipe.model.heads;
}
int64_t heads_of(const train::TranslatorRecipe& recipe) {
  const auto* transformer = std::get_if<model::TransformerTranslatorConfig>(&recipe.model);
  return transformer != nullptr ? transformer->heads : 0;
}

void run(const Train& options) {
  const train::Recipe recipe = train::read_recipe(options.recipe, options.settings);
  const std::filesystem::path folder =
      options.out.empty() ? std::filesystem::path(options.recipe).stem() : std::filesystem::path(options.out);
  const std::unique_ptr<train::Task> task = train::make_task(recipe, folder);
  if (!options.from.empty()) task->begin_from(options.from);
  if (recipe.train.bf16 && !multiplies_bf16()) {
    std::cerr
        << "regard: train.precision is bf16, which this processor has no instructions for: a step takes "
           "some ten times as long as in f32\n";
  }
  const int64_t heads = std::visit([](const auto& task) { return heads_of(task); }, recipe.task);
  if (heads % 8 != 0) {
    std::cerr << "regard: note: model.heads is " << heads
              << ", no multiple of 8; what that costs here: regard explain heads\n";
  }
  keep_memory();
  catch_interrupts();
  int64_t parameters = 0;
  for (const auto& named : task->parameters()) parameters += named.value.numel();
  const bool pictures = std::holds_alternative<train::ClassifierRecipe>(recipe.task);
  Narrator narrator(parameters, pictures ? "pictures" : "tokens");
  train::Listener listener;
  listener.step = [&](const train::StepReport& report) { narrator.step(report); };
  listener.validation = [&](int64_t step, const train::Validation& found, bool best) {
    narrator.validation(step, found, best);
  };
  listener.alarm = [&](int64_t step, const std::string& what) { narrator.alarm(step, what); };
  listener.stop = interrupted;
  const train::Outcome outcome = train::train(*task, recipe, folder, listener);
  narrator.end_line();
  const char* ending = outcome.ending == train::Ending::finished  ? "finished"
                       : outcome.ending == train::Ending::stopped ? "stopped"
                                                                  : "out of patience";
  const char* metric = train::metric_name(recipe.train.best);
  if (options.json) {
    nlohmann::json json = {
        {"ending", ending}, {"step", outcome.step}, {"folder", folder.string()}, {"parameters", parameters}};
    if (outcome.best) {
      json[std::string("best_") + metric] = *outcome.best;
      json["best_step"] = outcome.best_step;
    }
    std::cout << json.dump() << '\n';
    return;
  }
  std::cout << ending << " after step " << outcome.step;
  if (outcome.best)
    std::cout << "; best validation " << metric << ' ' << *outcome.best << " after step "
              << outcome.best_step;
  const bool translates = std::holds_alternative<train::TranslatorRecipe>(recipe.task);
  const auto& [verb, rest] = pictures     ? std::pair("eval", " --images FILE --labels FILE")
                             : translates ? std::pair("translate", " 'A text'")
                                          : std::pair("run", " 'Once'");
  std::cout << "\nthe model: " << folder.string() << " (try: regard " << verb << " --model "
            << folder.string() << rest << ")\n";
  if (outcome.ending == train::Ending::stopped) std::cout << "the same command goes on from here\n";
}

}  // namespace

void add_train(CLI::App& app) {
  auto options = std::make_shared<Train>();
  CLI::App* verb = app.add_subcommand("train", "Train a model by a recipe; goes on where it was stopped");
  verb->add_option("recipe", options->recipe, "Recipe, a TOML file (see recipes/)")
      ->required()
      ->type_name("FILE");
  verb->add_option("--set", options->settings, "A value of the recipe, such as train.steps=100 (repeatable)")
      ->type_name("KEY=VALUE");
  verb->add_option("--from", options->from,
                   "Begin with the numbers of a model of the same shape; one with more key and value heads "
                   "gives the means of its groups (language models)")
      ->type_name("FOLDER");
  verb->add_option("--out", options->out, "Folder of the training and its model (default: the recipe's name)")
      ->type_name("FOLDER");
  verb->add_flag("--json", options->json, "The outcome as one JSON object");
  verb->footer("Example: regard train recipes/shakespeare.toml --set data.train=input.txt --out shakespeare");
  verb->callback([options] { run(*options); });
}

}  // namespace regard::cli
