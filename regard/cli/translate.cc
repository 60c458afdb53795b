#include <unistd.h>

#include <ATen/core/Tensor.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/cli/cells.h"
#include "regard/cli/interrupt.h"
#include "regard/cli/look_map.h"
#include "regard/cli/look_print.h"
#include "regard/cli/output.h"
#include "regard/cli/progress.h"
#include "regard/cli/sampling.h"
#include "regard/cli/text_input.h"
#include "regard/cli/verbs.h"
#include "regard/lens/translation.h"
#include "regard/model/load_translator.h"
#include "regard/model/translate.h"

// translate: texts through a translator, and which source token each written one stands for.
namespace regard::cli {
namespace {

constexpr size_t kTextsAtOnce = 64;

struct Translate {
  std::vector<std::string> texts;
  TextInput lines;
  std::string model;
  std::optional<int64_t> beam;
  double length_penalty = 0.6;
  int64_t max_tokens = 0;
  model::Sampling sampling;
  bool align = false;
  std::optional<int64_t> layer, head;
  std::string png;
  bool json = false;
};

// One text on its way.
struct Text {
  std::string text;
  std::vector<int64_t> ids;
};

class Translating {
 public:
  Translating(const Translate& options, model::LoadedTranslator loaded)
      : options_(options), loaded_(std::move(loaded)), layers_(lens::cross_layers(*loaded_.model)) {
    asked_.bos = loaded_.bos;
    asked_.eos = loaded_.eos;
    asked_.pad = loaded_.pad;
    asked_.length_penalty = options.length_penalty;
    asked_.max_tokens = options.max_tokens;
    asked_.weights = options.align;
    const bool draws = options.sampling.temperature > 0;
    if (draws) asked_.sampling = options.sampling;
    asked_.beam = options.beam.value_or(draws ? 1 : 4);
    if (options.align && layers_ == 0) {
      throw std::invalid_argument(loaded_.name + " has no attention, so that there is nothing to align by");
    }
  }

  void add(const std::string& text, size_t number) {
    Text made{text, {}};
    try {
      made.ids = model::source_ids(*loaded_.tokenizer, text, loaded_.eos);
    } catch (const text::InvalidUtf8& error) {
      throw std::invalid_argument("text " + std::to_string(number) + ": " + error.what());
    }
    const auto tokens = static_cast<int64_t>(made.ids.size());
    if (tokens > loaded_.model->max_positions()) {
      throw std::invalid_argument("text " + std::to_string(number) + " has " + count_text(tokens) +
                                  " tokens; " + loaded_.name + " reads at most " +
                                  count_text(loaded_.model->max_positions()));
    }
    waiting_.push_back(std::move(made));
    if (waiting_.size() == kTextsAtOnce) flush();
  }

  void flush() {
    // A text without a token has nothing to be translated.
    std::vector<std::vector<int64_t>> ids;
    for (const Text& text : waiting_)
      if (text.ids.size() > 1) ids.push_back(text.ids);
    std::vector<model::Translation> made;
    if (!ids.empty()) {
      Progress progress("translating", "texts");
      asked_.progress = [&](int64_t done, int64_t all) {
        stop_if_interrupted();
        progress.update(done, all);
      };
      made = model::translate(*loaded_.model, ids, asked_);
    }
    size_t next = 0;
    for (const Text& text : waiting_) print(text, text.ids.size() > 1 ? made[next++] : model::Translation());
    waiting_.clear();
    flush_output();
  }

 private:
  std::vector<std::string> pieces(const std::vector<int64_t>& ids) const {
    std::vector<std::string> out;
    for (const int64_t id : ids)
      out.push_back(loaded_.tokenizer->display_piece(static_cast<text::TokenId>(id)));
    return out;
  }

  void print(const Text& source, const model::Translation& made) {
    const std::string text =
        loaded_.tokenizer->decode(std::vector<text::TokenId>(made.ids.begin(), made.ids.end()));
    std::optional<lens::Alignment> alignment;
    if (options_.align && !made.ids.empty())
      alignment = lens::align(made.weights, layers_, options_.layer, options_.head);
    if (options_.json) {
      print_json(source, made, text, alignment);
    } else {
      std::cout << text << '\n';
      if (alignment) print_alignment(source, made, *alignment);
    }
    if (alignment && !options_.png.empty()) {
      const auto cells = values(*alignment);
      write_cells_png(options_.png, cells, alignment->soft.size(0), alignment->soft.size(1));
      std::cerr << options_.png << ": rows are the translation's tokens, columns the source's\n";
    }
  }

  static std::vector<float> values(const lens::Alignment& alignment) {
    const auto* data = alignment.soft.const_data_ptr<float>();
    return {data, data + alignment.soft.numel()};
  }

  void print_alignment(const Text& source, const model::Translation& made,
                       const lens::Alignment& alignment) const {
    const Terminal terminal = Terminal::detect(STDOUT_FILENO);
    Cells cells;
    cells.rows = pieces(made.ids);
    cells.columns = pieces(source.ids);
    cells.values = values(alignment);
    std::string head = alignment.head ? "head " + std::to_string(*alignment.head) : "the mean of its heads";
    if (made.weights.size(1) == 1) head = "its one head";
    std::cout << terminal.ink("  where each token looked (" + alignment.layer + ", " + head + ")", Ink::dim)
              << '\n';
    const Cells shown = fewer_columns(cells, columns_that_fit(terminal.width));
    for (const std::string& line :
         cell_lines(terminal, shown, 0, shown.columns.size() == cells.columns.size()))
      std::cout << line << '\n';
    std::cout << scale_line(terminal, cells.largest()) << '\n';
    std::vector<std::string> pairs;
    for (size_t t = 0; t < alignment.hard.size(); ++t) {
      pairs.push_back(terminal.show(cells.rows[t] + (terminal.unicode ? "→" : "->") +
                                    cells.columns[static_cast<size_t>(alignment.hard[t])]));
    }
    for (const std::string& line : wrap(terminal, pairs, terminal.width, 2, 2)) std::cout << line << '\n';
    std::cout << '\n';
  }

  void print_json(const Text& source, const model::Translation& made, const std::string& text,
                  const std::optional<lens::Alignment>& alignment) const {
    nlohmann::json json = {{"source", source.text},
                           {"translation", text},
                           {"ids", made.ids},
                           {"finished", made.finished},
                           {"log_probability", made.log_probability},
                           {"score", made.score}};
    if (alignment) {
      nlohmann::json soft = nlohmann::json::array(), hard = nlohmann::json::array();
      const std::vector<float> all = values(*alignment);
      const auto columns = static_cast<size_t>(alignment->soft.size(1));
      for (size_t t = 0; t < alignment->hard.size(); ++t) {
        const auto row = all.begin() + static_cast<int64_t>(t * columns);
        soft.push_back(std::vector<float>(row, row + static_cast<int64_t>(columns)));
        hard.push_back({t, alignment->hard[t]});
      }
      json["alignment"] = {{"layer", alignment->layer},
                           {"source_pieces", pieces(source.ids)},
                           {"pieces", pieces(made.ids)},
                           {"soft", soft},
                           {"hard", hard}};
      if (alignment->head) json["alignment"]["head"] = *alignment->head;
    }
    std::cout << json.dump() << '\n';
  }

  const Translate& options_;
  model::LoadedTranslator loaded_;
  int64_t layers_;
  model::TranslateOptions asked_;
  std::vector<Text> waiting_;
};

void check(const Translate& options) {
  if (!options.texts.empty() && !options.lines.file.empty())
    throw std::invalid_argument("the texts were given twice, as arguments and by --file " +
                                options.lines.file);
  if (!options.align && (options.layer || options.head || !options.png.empty()))
    throw std::invalid_argument("--layer, --head and --png go with --align");
  if (!options.png.empty() && options.texts.size() != 1)
    throw std::invalid_argument("--png takes one text, given as an argument");
  if (options.beam.value_or(1) > 1 && options.sampling.temperature > 0)
    throw std::invalid_argument("--beam searches and --temperature draws: one or the other");
}

void run(const Translate& options) {
  check(options);
  catch_interrupts();
  Translating translating(options, model::load_translator(options.model));
  if (options.texts.empty() || (options.texts.size() == 1 && options.texts[0] == "-")) {
    options.lines.lines([&](const std::string& line, size_t number) { translating.add(line, number); });
  } else {
    for (size_t i = 0; i < options.texts.size(); ++i) translating.add(options.texts[i], i + 1);
  }
  translating.flush();
}

}  // namespace

void add_translate(CLI::App& app) {
  auto options = std::make_shared<Translate>();
  CLI::App* verb = app.add_subcommand("translate", "Translate texts, and see which words stand for which");
  verb->add_option("text", options->texts, "Texts (none, or '-': each line of standard input)");
  verb->add_option("--file", options->lines.file, "Translate each line of FILE ('-': standard input)")
      ->type_name("FILE");
  verb->add_option("--model", options->model, "Folder of a translator, as 'regard train' writes it")
      ->required();
  verb->add_option("--beam", options->beam,
                   "Hypotheses to follow; 1: always the likeliest token (default: 4)")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--length-penalty", options->length_penalty,
                   "alpha: hypotheses compare by log P / ((5 + tokens) / 6)^alpha")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  verb->add_option("-n,--max-tokens", options->max_tokens,
                   "Stop after so many tokens (default: twice the source's and 10)")
      ->check(CLI::Range(1, 1 << 20));
  add_sampling(*verb, options->sampling, "Above 0: draw each token instead of searching");
  verb->add_flag("--align", options->align, "Show which source token each written one looked at");
  verb->add_option("--layer", options->layer,
                   "With --align: of this decoder layer (default: the last but one)")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--head", options->head, "With --align: of this head (default: the mean of all)")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--png", options->png, "With --align: write the map to FILE")->type_name("FILE");
  verb->add_flag("--json", options->json, "One JSON object a text");
  verb->footer("Example: regard translate --model runs/en-fr/best --align 'The house is small.'");
  verb->callback([options] { run(*options); });
}

}  // namespace regard::cli
