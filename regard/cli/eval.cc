#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/cli/interrupt.h"
#include "regard/cli/progress.h"
#include "regard/cli/verbs.h"
#include "regard/io/atomic_file.h"
#include "regard/io/error.h"
#include "regard/io/mapped_file.h"
#include "regard/io/png.h"
#include "regard/lab/plot.h"
#include "regard/model/classifier.h"
#include "regard/model/load_translator.h"
#include "regard/model/model.h"
#include "regard/train/classification.h"
#include "regard/train/evaluate.h"
#include "regard/train/generated_task.h"
#include "regard/train/parallel_text.h"
#include "regard/train/translation_score.h"

// eval: how good a model is on a test set, or translations that are there already.
namespace regard::cli {
namespace {

struct Eval {
  std::vector<std::string> models;
  std::string data;
  std::string task;
  train::GeneratedTask generated;
  int64_t texts = 500;
  bool swap = false;
  int64_t beam = 1;
  double length_penalty = 0.6;
  std::string tokens = "13a";
  int64_t length = 0;
  std::string hypotheses;
  std::vector<std::string> references;
  std::string images, labels;
  std::string write;
  std::string png;
  bool json = false;
};

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> out;
  const std::string text = io::read_text(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    if (!out.back().empty() && out.back().back() == '\r') out.back().pop_back();
    at = end + 1;
  }
  return out;
}

train::BleuTokens bleu_tokens(const std::string& name) {
  return name == "zh"     ? train::BleuTokens::chinese
         : name == "none" ? train::BleuTokens::spaces
                          : train::BleuTokens::mteval_13a;
}

void score_files(const Eval& options) {
  const std::vector<std::string> hypotheses = lines_of(options.hypotheses);
  std::vector<std::vector<std::string>> references(hypotheses.size());
  for (const std::string& path : options.references) {
    const std::vector<std::string> lines = lines_of(path);
    if (lines.size() != hypotheses.size()) {
      io::fail(path, "there are " + std::to_string(lines.size()) + " lines, but " +
                         std::to_string(hypotheses.size()) + " in " + options.hypotheses);
    }
    for (size_t i = 0; i < lines.size(); ++i) references[i].push_back(lines[i]);
  }
  const train::Bleu bleu = train::bleu(hypotheses, references, bleu_tokens(options.tokens));
  const double chrf = train::chrf(hypotheses, references);
  if (options.json) {
    std::cout << nlohmann::json{{"texts", hypotheses.size()},
                                {"bleu", bleu.score},
                                {"precisions", bleu.precisions},
                                {"brevity_penalty", bleu.brevity_penalty},
                                {"length", bleu.length},
                                {"reference_length", bleu.reference_length},
                                {"chrf", chrf}}
                     .dump()
              << '\n';
    return;
  }
  char line[200];
  std::snprintf(
      line, sizeof line,
      "BLEU %.2f (%.1f/%.1f/%.1f/%.1f, brevity penalty %.3f, %lld tokens, references %lld)\nchrF %.2f\n",
      bleu.score, bleu.precisions[0], bleu.precisions[1], bleu.precisions[2], bleu.precisions[3],
      bleu.brevity_penalty, static_cast<long long>(bleu.length),
      static_cast<long long>(bleu.reference_length), chrf);
  std::cout << line;
}

nlohmann::json to_json(const train::TranslationQuality& quality) {
  return {{"texts", quality.texts},       {"bleu", quality.bleu}, {"chrf", quality.chrf},
          {"accuracy", quality.accuracy}, {"loss", quality.loss}, {"perplexity", std::exp(quality.loss)},
          {"tokens", quality.tokens}};
}

void print_row(const std::string& name, const train::TranslationQuality& quality) {
  char line[160];
  std::snprintf(line, sizeof line, "%-12s %7lld %7.2f %7.2f %8.1f%% %8.4f %11.2f\n", name.c_str(),
                static_cast<long long>(quality.texts), quality.bleu, quality.chrf, 100 * quality.accuracy,
                quality.loss, std::exp(quality.loss));
  std::cout << line;
}

std::string range(const train::TranslationReport::Bucket& bucket) {
  return std::to_string(bucket.shortest) +
         (bucket.longest == INT64_MAX ? " and more" : " to " + std::to_string(bucket.longest));
}

void print(const std::string& model, const train::TranslationReport& report, const Eval& options) {
  if (options.json) {
    nlohmann::json json = to_json(report.all);
    json["model"] = model;
    json["beam"] = options.beam;
    json["by_length"] = nlohmann::json::array();
    for (const auto& bucket : report.by_length) {
      nlohmann::json one = to_json(bucket.quality);
      one["shortest"] = bucket.shortest;
      if (bucket.longest != INT64_MAX) one["longest"] = bucket.longest;
      json["by_length"].push_back(one);
    }
    std::cout << json.dump() << '\n';
    return;
  }
  if (options.models.size() > 1) std::cout << model << '\n';
  std::cout << "source         texts    BLEU    chrF    exact     loss  perplexity\n";
  for (const auto& bucket : report.by_length) print_row(range(bucket), bucket.quality);
  print_row("all", report.all);
}

std::string plain_name(const std::string& folder) {
  std::filesystem::path path(folder);
  if (path.filename().empty()) path = path.parent_path();
  return path.filename().string();
}

train::TranslationReport evaluate(const std::string& name, const std::vector<train::TextPair>& texts,
                                  const Eval& options) {
  model::LoadedTranslator translator = model::load_translator(name);
  Progress progress("translating", "texts");
  train::EvaluateOptions how;
  how.beam = options.beam;
  how.length_penalty = options.length_penalty;
  how.bleu_tokens = bleu_tokens(options.tokens);
  how.progress = [&](int64_t done, int64_t all) {
    stop_if_interrupted();
    progress.update(done, all);
  };
  return train::evaluate(translator, texts, how);
}

std::vector<train::TextPair> texts_of(const Eval& options) {
  if (options.task.empty()) return train::read_parallel_text(options.data, options.swap);
  return train::generate(options.generated, options.texts, 2);
}

void translate_texts(const Eval& options) {
  const std::vector<train::TextPair> texts = texts_of(options);
  lab::Plot plot;
  plot.title = "BLEU by the length of the source";
  plot.x_label = "tokens of the source, mean of each group";
  plot.y_label = "BLEU";
  for (const std::string& name : options.models) {
    const train::TranslationReport report = evaluate(name, texts, options);
    print(name, report, options);
    if (!options.write.empty()) {
      std::string all;
      for (const std::string& translation : report.translations) all += translation + '\n';
      io::write_file_atomically(options.write, all);
    }
    lab::Curve curve;
    curve.label = plain_name(name);
    for (const auto& bucket : report.by_length) {
      curve.x.push_back(bucket.mean);
      curve.y.push_back(bucket.quality.bleu);
    }
    plot.curves.push_back(curve);
  }
  if (!options.json)
    std::cout << "length of the source in tokens; loss in nats per token of the references\n";
  if (options.png.empty()) return;
  const io::Canvas canvas = lab::draw({plot});
  io::write_png(options.png, canvas.width(), canvas.height(), canvas.rgb());
}

void answer_texts(const Eval& options) {
  const train::AnswerQuality found = train::evaluate(model::load(options.models[0]), texts_of(options));
  if (options.json) {
    std::cout << nlohmann::json{{"texts", found.texts},
                                {"accuracy", found.accuracy},
                                {"loss", found.loss},
                                {"perplexity", std::exp(found.loss)},
                                {"tokens", found.tokens}}
                     .dump()
              << '\n';
    return;
  }
  char line[200];
  std::snprintf(line, sizeof line,
                "%lld texts, %.1f%% answered right as a whole; loss %.4f nats per token of the answers\n",
                static_cast<long long>(found.texts), 100 * found.accuracy, found.loss);
  std::cout << line;
}

void name_pictures(const Eval& options) {
  const model::LoadedClassifier loaded = model::load_classifier(options.models[0]);
  const train::ImageQuality found =
      train::evaluate(*loaded.model, loaded.scale, train::read_labelled(options.images, options.labels));
  if (options.json) {
    nlohmann::json json = {{"images", found.images}, {"accuracy", found.accuracy}, {"loss", found.loss}};
    for (const auto& of : found.classes)
      json["classes"].push_back({{"images", of.images}, {"right", of.right}});
    std::cout << json.dump() << '\n';
    return;
  }
  char line[200];
  std::cout << "class   pictures    right\n";
  for (size_t i = 0; i < found.classes.size(); ++i) {
    const auto& of = found.classes[i];
    const double share =
        of.images > 0 ? 100 * static_cast<double>(of.right) / static_cast<double>(of.images) : 0;
    std::snprintf(line, sizeof line, "%-7zu %8lld %7.2f%%\n", i, static_cast<long long>(of.images), share);
    std::cout << line;
  }
  std::snprintf(line, sizeof line, "%-7s %8lld %7.2f%%\nloss %.4f nats per picture\n", "all",
                static_cast<long long>(found.images), 100 * found.accuracy, found.loss);
  std::cout << line;
}

void read_text(const Eval& options) {
  const model::Loaded loaded = model::load(options.models[0]);
  const std::string text = io::read_text(options.data);
  Progress progress("reading", "tokens");
  const train::TextQuality found =
      train::evaluate(loaded, text, options.length, [&](int64_t done, int64_t all) {
        stop_if_interrupted();
        progress.update(done, all);
      });
  if (options.json) {
    std::cout << nlohmann::json{{"tokens", found.tokens},
                                {"bytes", found.bytes},
                                {"loss", found.loss},
                                {"perplexity", std::exp(found.loss)},
                                {"bits_per_byte", found.bits_per_byte}}
                     .dump()
              << '\n';
    return;
  }
  char line[200];
  std::snprintf(line, sizeof line,
                "%lld tokens, %lld bytes; loss %.4f nats per token, perplexity %.3f, %.4f bits per byte\n",
                static_cast<long long>(found.tokens), static_cast<long long>(found.bytes), found.loss,
                std::exp(found.loss), found.bits_per_byte);
  std::cout << line;
}

void run(Eval options) {
  if (!options.hypotheses.empty() || !options.references.empty()) {
    if (options.hypotheses.empty() || options.references.empty() || !options.models.empty())
      throw std::invalid_argument("--hypotheses and --references go together, without --model");
    return score_files(options);
  }
  if (options.models.empty())
    throw std::invalid_argument("give --model FOLDER, or --hypotheses and --references");
  catch_interrupts();
  if (!options.images.empty() || !options.labels.empty()) {
    if (options.images.empty() || options.labels.empty() || options.models.size() > 1)
      throw std::invalid_argument("--images and --labels go together, with one --model");
    return name_pictures(options);
  }
  if (options.data.empty() == options.task.empty())
    throw std::invalid_argument("give one of --data FILE and --task NAME to test the model on");
  const bool translates = std::ranges::all_of(options.models, model::is_translator);
  if (!translates && (options.models.size() > 1 || !options.png.empty()))
    throw std::invalid_argument("several --model and --png are for models that translate");
  if (options.models.size() > 1 && !options.write.empty())
    throw std::invalid_argument("--write keeps the translations of one model; " +
                                std::to_string(options.models.size()) + " are given");
  if (!options.task.empty()) {
    options.generated.kind = train::generated_named(options.task);
    if (options.generated.shortest == 0) options.generated.shortest = options.generated.longest;
  }
  if (translates) return translate_texts(options);
  if (!options.task.empty()) return answer_texts(options);
  read_text(options);
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<Eval>();
  options->generated.shortest = 0;
  CLI::App* verb =
      app.add_subcommand("eval", "How good a model is on a test set: BLEU, chrF, perplexity, accuracy");
  verb->add_option("--model", options->models,
                   "Folder of a translator (repeatable), a language model or a classifier of pictures")
      ->type_name("MODEL");
  verb->add_option("--data", options->data,
                   "Test set: TSV of a source and its translations, or a text for a language model")
      ->type_name("FILE");
  verb->add_flag("--swap", options->swap, "Translate from the second column to the first");
  verb->add_option("--beam", options->beam, "Hypotheses that are followed; 1: greedy")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->add_option("--length-penalty", options->length_penalty,
                   "Of beam search; 0 favours short translations")
      ->check(CLI::Range(0.0, 5.0))
      ->capture_default_str();
  verb->add_option("--tokenize", options->tokens, "How BLEU cuts words, as sacreBLEU names it")
      ->check(CLI::IsMember({"13a", "zh", "none"}))
      ->capture_default_str();
  verb->add_option("--write", options->write, "The translations, one a line")->type_name("FILE");
  verb->add_option("--task", options->task, "A generated task instead of a file: " + train::task_names())
      ->type_name("NAME");
  verb->add_option("--symbols", options->generated.symbols, "Of the task")->capture_default_str();
  verb->add_option("--task-length", options->generated.longest, "Of the task's texts, at most")
      ->capture_default_str();
  verb->add_option("--task-shortest", options->generated.shortest, "Of the task's texts (default: the same)")
      ->type_name("INT");
  verb->add_option("--task-seed", options->generated.seed, "Of the task's texts")->capture_default_str();
  verb->add_option("--texts", options->texts, "Of the task")->capture_default_str();
  verb->add_option("--length", options->length,
                   "Language models: tokens of a piece (default: what the model takes, at most 1024)")
      ->type_name("INT");
  verb->add_option("--images", options->images, "Classifiers: pictures to name, an IDX file, plain or .gz")
      ->type_name("FILE");
  verb->add_option("--labels", options->labels, "Their classes")->type_name("FILE");
  verb->add_option("--hypotheses", options->hypotheses, "Score translations that are there, one a line")
      ->type_name("FILE");
  verb->add_option("--references", options->references, "Their references, one a line (repeatable)")
      ->type_name("FILE");
  verb->add_option("--png", options->png, "Plot of BLEU by the length of the source, a line for each model")
      ->type_name("FILE");
  verb->add_flag("--json", options->json, "One JSON object for each model");
  verb->footer("Example: regard eval --model tatoeba-en-fr-transformer --data test.tsv --beam 4");
  verb->callback([options] { run(*options); });
}

}  // namespace regard::cli
