#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "regard/cli/interrupt.h"
#include "regard/cli/look_map.h"
#include "regard/cli/look_print.h"
#include "regard/cli/progress.h"
#include "regard/cli/text_input.h"
#include "regard/cli/unreadable.h"
#include "regard/cli/verbs.h"
#include "regard/io/atomic_file.h"
#include "regard/lens/make_report.h"
#include "regard/lens/qkv_file.h"
#include "regard/lens/record.h"
#include "regard/lens/trace.h"
#include "regard/model/model.h"
#include "regard/web/page.h"

// look: what the heads of a model do with a text.
namespace regard::cli {
namespace {

struct Look {
  TextInput input;
  std::string model = "minilm";
  std::string token;
  std::string on;
  std::optional<int64_t> layer;
  std::optional<int64_t> head;
  std::vector<int64_t> layers;
  bool received = false;
  bool words = false;
  CLI::Option* tokens = nullptr;  // --tokens: the view, or with --qkv the file
  std::string token_file;
  bool hide_special = false;
  bool trace = false;
  bool truncate = false;
  bool json = false;
  std::string compare;
  std::string pieces;
  std::string qkv;
  std::string npz;
  std::string png;
  std::string html;
  std::string precision = "f32";
};

// A text with its recording and what is said about it.
struct Seen {
  lens::Recording recording;
  lens::Report report;
};

// --tokens takes a file only beside --qkv; else what follows it is the text.
void sort_out_tokens(Look& options) {
  if (!options.qkv.empty() || options.token_file.empty()) return;
  if (!options.input.argument.empty()) {
    throw std::invalid_argument("--tokens takes a file only with --qkv: the text was already given");
  }
  options.input.argument = std::exchange(options.token_file, {});
}

bool tokens_view(const Look& options) {
  // Without a model words are known by the look of the pieces only, so they are merged on request.
  return options.qkv.empty() ? options.tokens->count() > 0 : !options.words;
}

void check(const Look& options) {
  const auto refuse = [](bool wrong, const char* sentence) {
    if (wrong) throw std::invalid_argument(sentence);
  };
  refuse(options.words && options.qkv.empty() && options.tokens->count() > 0,
         "--words and --tokens exclude each other: choose one view");
  refuse(options.layer.has_value() != options.head.has_value(),
         "--layer and --head go together: both number the head to draw, from 0");
  refuse(!options.pieces.empty() && (!options.input.argument.empty() || !options.input.file.empty()),
         "--pieces gives the text; leave the other one out");
  refuse(!options.qkv.empty() && (!options.input.argument.empty() || !options.input.file.empty()),
         "--qkv brings its own tokens (--tokens FILE); leave the text out");
  refuse(!options.qkv.empty() && !options.pieces.empty(), "--qkv and --pieces exclude each other");
  refuse(!options.qkv.empty() && !options.compare.empty(),
         "--compare needs a model; it cannot go with --qkv");
  const bool files = !options.npz.empty() || !options.png.empty() || !options.html.empty();
  refuse(
      !options.compare.empty() && (files || options.trace || options.layer.has_value()),
      "--compare prints two texts side by side; it cannot go with --layer, --trace, --npz, --png or --html");
}

lens::Precision precision_of(const Look& options) {
  return options.precision == "f16" ? lens::Precision::f16 : lens::Precision::f32;
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// What to type to see the same text again, up to heads and outputs.
std::string command_of(const Look& options) {
  std::string command = "regard look";
  if (!options.qkv.empty()) {
    command += " --qkv " + quoted(options.qkv);
    if (!options.token_file.empty()) command += " --tokens " + quoted(options.token_file);
    return command;
  }
  if (options.model != "minilm") command += " --model " + quoted(options.model);
  if (!options.pieces.empty()) return command + " --pieces " + quoted(options.pieces);
  if (!options.input.file.empty()) return command + " --file " + quoted(options.input.file);
  return command + " " + quoted(options.input.argument.empty() ? "-" : options.input.argument);
}

text::Encoding encode(const model::Loaded& loaded, const Look& options, const std::string& text) {
  const int64_t limit = loaded.model->config().max_positions;
  text::EncodeOptions encode;
  if (options.truncate) encode.max_length = static_cast<size_t>(std::max<int64_t>(limit, 0));
  text::Encoding encoding = options.pieces.empty() ? loaded.tokenizer->encode(text, encode)
                                                   : loaded.tokenizer->encode_pieces(options.pieces, encode);
  const auto tokens = static_cast<int64_t>(encoding.size());
  if (limit > 0 && tokens > limit) {
    throw std::invalid_argument("the text has " + count_text(tokens) + " tokens; " + loaded.name +
                                " reads at most " + count_text(limit) + " (--truncate cuts it there)");
  }
  const auto own = std::count(encoding.special.begin(), encoding.special.end(), 0);
  if (own == 0 && encoding.unknown == 0) {
    throw std::invalid_argument("the text is empty: there is no word to look at");
  }
  return encoding;
}

lens::ReportOptions report_options(const Look& options) {
  lens::ReportOptions out;
  out.words = !tokens_view(options);
  out.hide_special = options.hide_special;
  if (!options.token.empty()) out.token = options.token;
  if (!options.on.empty()) out.on = options.on;
  if (options.layer) out.carry.emplace_back(*options.layer, *options.head);
  return out;
}

void make(Seen& seen, const Look& options) {
  Progress progress("measuring", "heads");
  lens::ReportOptions report = report_options(options);
  report.progress = [&](int64_t done, int64_t all) {
    stop_if_interrupted();
    progress.update(done, all);
  };
  seen.report = lens::make_report(seen.recording, report);
  seen.report.command = command_of(options);
}

Seen look_at(const model::Loaded& loaded, const Look& options, const std::string& text) {
  const text::Encoding encoding = encode(loaded, options, text);
  Unreadable unreadable(loaded);
  unreadable.count(encoding);
  unreadable.warn();
  lens::RecordOptions record;
  record.layers = options.layers;
  record.precision = precision_of(options);
  record.keep_values = options.trace || !options.npz.empty();
  record.keep_inputs = options.trace;
  Seen seen;
  {
    Progress progress("reading", "layers");
    record.progress = [&](int64_t done, int64_t all) {
      stop_if_interrupted();
      progress.update(done, all);
    };
    seen.recording = lens::record(loaded, encoding, text, record);
  }
  make(seen, options);
  if (encoding.truncated > 0) {
    seen.report.tokens_before_cut = static_cast<int64_t>(encoding.size() + encoding.truncated);
  }
  return seen;
}

void print_hints(const Look& options, const lens::Report& report) {
  const Terminal terminal = Terminal::detect(STDOUT_FILENO);
  std::vector<std::string> hints;
  if (report.causal && !options.received && report.focus.unit >= 0) {
    hints.push_back("which later words look at '" + unit_text(report, report.focus.unit) + "': --received");
  }
  const std::vector<const lens::FocusHead*> telling = telling_heads(report);
  if (!telling.empty() && !options.layer) {
    const lens::FocusHead& best = *telling.front();
    hints.push_back("the whole map of a head: --layer " + std::to_string(best.layer) + " --head " +
                    std::to_string(best.head) + "; its arithmetic: --trace");
  }
  if (options.html.empty()) hints.push_back("all heads on a page: --html look.html");
  std::cout << '\n';
  for (const std::string& hint : hints) {
    Line line(terminal);
    line.add("  Next, " + hint, Ink::dim);
    std::cout << line.text() << '\n';
  }
}

void print(const Look& options, const Seen& seen) {
  const Terminal terminal = Terminal::detect(STDOUT_FILENO);
  const lens::Report& report = seen.report;
  const bool ascii_text =
      std::all_of(report.text.begin(), report.text.end(), [](char c) { return (c & 0x80) == 0; });
  if (!terminal.unicode && !ascii_text) {
    std::cerr << "regard: the locale is not UTF-8, so '?' stands for other characters (try LC_ALL=C.UTF-8)\n";
  }
  print_header(std::cout, terminal, report);
  if (options.layer) {
    print_map(std::cout, terminal, seen.recording, report, *options.layer, *options.head);
  } else if (!options.trace) {
    print_grid(std::cout, terminal, report);
  }
  if (options.trace) {
    const bool named = options.layer.has_value();
    if (!named && report.focus.heads.empty())
      throw std::invalid_argument("--trace needs a head: --layer and --head");
    const int64_t layer = named ? *options.layer : report.focus.heads.front().layer;
    const int64_t head = named ? *options.head : report.focus.heads.front().head;
    const int64_t position = report.units[static_cast<size_t>(report.focus.unit)].first;
    print_trace(std::cout, terminal, report, lens::trace(seen.recording, layer, head, position));
  } else {
    print_focus(std::cout, terminal, report);
  }
  if (options.received) print_received(std::cout, terminal, report);
  print_caution(std::cout, terminal);
  print_hints(options, report);
}

void print_json(const Look& options, const Seen& seen) {
  nlohmann::json json = lens::to_json(seen.report);
  if (options.trace) {
    const auto& heads = seen.report.focus.heads;
    if (!options.layer && heads.empty())
      throw std::invalid_argument("--trace needs a head: --layer and --head");
    const int64_t layer = options.layer ? *options.layer : heads.front().layer;
    const int64_t head = options.head ? *options.head : heads.front().head;
    const int64_t position = seen.report.units[static_cast<size_t>(seen.report.focus.unit)].first;
    json["trace"] = to_json(lens::trace(seen.recording, layer, head, position));
  }
  std::cout << json.dump() << '\n';
}

void write_files(const Look& options, const Seen& seen) {
  const auto wrote = [](const std::string& path, const std::string& what) {
    std::cerr << path << ": " << what << '\n';
  };
  if (!options.npz.empty()) {
    lens::write_qkv(options.npz, seen.recording);
    wrote(options.npz, "queries, keys, values and log-sum-exp of " +
                           std::to_string(seen.recording.layers.size()) + " layers; look again with --qkv");
  }
  if (!options.png.empty()) {
    if (options.layer) {
      write_map_png(options.png, pooled_map(seen.recording, seen.report, *options.layer, *options.head, 960));
      wrote(options.png, "the map of " + head_name(*options.layer, *options.head) + ", rows look at columns");
    } else {
      write_grid_png(options.png, seen.report);
      wrote(options.png, "the maps of all heads, a row a layer");
    }
  }
  if (!options.html.empty()) {
    io::write_file_atomically(options.html, web::page(seen.report));
    wrote(options.html, "open it in a browser; it needs no network");
  }
}

void run(Look& options) {
  sort_out_tokens(options);
  check(options);
  catch_interrupts();
  Seen seen;
  std::optional<Seen> other;
  if (!options.qkv.empty()) {
    std::optional<std::filesystem::path> tokens;
    if (!options.token_file.empty()) tokens = options.token_file;
    seen.recording = lens::read_qkv(options.qkv, tokens, precision_of(options));
    make(seen, options);
  } else {
    // The text comes first: a mistake there should not wait for the model.
    const std::string text =
        options.pieces.empty() ? options.input.text() : text::Tokenizer::forced_text(options.pieces);
    const model::Loaded loaded = model::load(options.model);
    seen = look_at(loaded, options, text);
    if (!options.compare.empty()) {
      Look second = options;
      second.pieces.clear();
      other = look_at(loaded, second, options.compare);
    }
  }
  if (other) {
    if (options.json) {
      std::cout
          << nlohmann::json{{"texts", {lens::to_json(seen.report), lens::to_json(other->report)}}}.dump()
          << '\n';
    } else {
      const Terminal terminal = Terminal::detect(STDOUT_FILENO);
      print_comparison(std::cout, terminal, seen.report, other->report);
      print_caution(std::cout, terminal);
    }
    return;
  }
  if (options.json) {
    print_json(options, seen);
  } else {
    print(options, seen);
  }
  std::cout.flush();
  write_files(options, seen);
}

}  // namespace

void add_look(CLI::App& app) {
  auto options = std::make_shared<Look>();
  CLI::App* verb = app.add_subcommand("look", "What the heads of a model do with a text");
  options->input.add_to(*verb, "Text to look at");
  verb->add_option("--model", options->model,
                   "Model: a name of 'regard models', a folder, a GGUF file or ORG/NAME")
      ->capture_default_str();
  verb->add_option("--token", options->token,
                   "The word to look from: a word, word#2 for its second occurrence, or a token's position")
      ->type_name("WORD");
  verb->add_option("--on", options->on, "Rank heads by their weight on this word")->type_name("WORD");
  verb->add_option("--layer", options->layer, "Draw the map of one head: its layer, from 0 (with --head)");
  verb->add_option("--head", options->head, "... and its number, from 0");
  verb->add_option("--layers", options->layers, "Keep only these layers, such as 0,5")->delimiter(',');
  verb->add_flag("--received", options->received, "Also show which words look at the chosen one");
  verb->add_flag("--words", options->words, "Rows and columns are words, sub-words merged (default)");
  options->tokens =
      verb->add_option("--tokens", options->token_file,
                       "Rows and columns are the model's tokens; with --qkv: their FILE, one a line")
          ->expected(0, 1)
          ->type_name("[FILE]");
  verb->add_flag("--hide-special", options->hide_special,
                 "Leave [CLS], <s> and the like out and rescale the rows");
  verb->add_flag("--trace", options->trace, "One position step by step, from x to the sum of weight times v");
  verb->add_option("--compare", options->compare, "A second text, shown side by side")->type_name("TEXT");
  verb->add_option("--pieces", options->pieces,
                   "Force the split into tokens: 'a|b|c', pieces of the vocabulary")
      ->type_name("PIECES");
  verb->add_option("--qkv", options->qkv,
                   "Look at q, k[, v] that any program saved (NPZ); no model is needed")
      ->type_name("FILE");
  verb->add_flag("--truncate", options->truncate,
                 "Cut a text that is longer than the model reads (and say so)");
  verb->add_option("--precision", options->precision, "Keep q and k in f32 (exact) or f16 (half the memory)")
      ->check(CLI::IsMember({"f32", "f16"}))
      ->capture_default_str();
  verb->add_flag("--json", options->json, "Print JSON");
  verb->add_option("--npz", options->npz, "Write q, k, v and log-sum-exp to FILE (NumPy)")->type_name("FILE");
  verb->add_option("--png", options->png, "Draw the head of --layer and --head, or all heads, into FILE")
      ->type_name("FILE");
  verb->add_option("--html", options->html, "Write a page with all heads to FILE")->type_name("FILE");
  verb->footer(
      "Examples:\n"
      "  regard look \"The animal didn't cross the street because it was too tired\" --token it\n"
      "  regard look --model e5 '我爱你' --hide-special\n"
      "  regard look --model smollm2 --file chapter.txt --received --token love");
  verb->callback([options] { run(*options); });
}

}  // namespace regard::cli
