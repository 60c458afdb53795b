#include "regard/cli/look_options.h"

#include <stdexcept>
#include <utility>

#include "regard/lens/form.h"

namespace regard::cli {
namespace {

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

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

void add_options(CLI::App& verb, Look& options) {
  options.input.add_to(verb, "Text to look at");
  verb.add_option("--model", options.model,
                  "Model: a name of 'regard models', a folder, a GGUF file or ORG/NAME")
      ->capture_default_str();
  verb.add_option("--token", options.token,
                  "The word to look from: a word, word#2 for its second occurrence, or a token's position")
      ->type_name("WORD");
  verb.add_option("--on", options.on, "Rank heads by their weight on this word")->type_name("WORD");
  verb.add_option("--layer", options.layer, "Draw the map of one head: its layer, from 0 (with --head)");
  verb.add_option("--head", options.head, "... and its number, from 0");
  verb.add_option("--layers", options.layers, "Keep only these layers, such as 0,5")->delimiter(',');
  verb.add_flag("--received", options.received, "Also show which words look at the chosen one");
  verb.add_flag("--words", options.words, "Rows and columns are words, sub-words merged (default)");
  options.tokens =
      verb.add_option("--tokens", options.token_file,
                      "Rows and columns are the model's tokens; with --qkv: their FILE, one a line")
          ->expected(0, 1)
          ->type_name("[FILE]");
  verb.add_flag("--hide-special", options.hide_special,
                "Leave [CLS], <s> and the like out and rescale the rows");
  verb.add_flag("--trace", options.trace, "One position step by step, from x to the sum of weight times v");
  verb.add_option("--compare", options.compare, "A second text, shown side by side")->type_name("TEXT");
  verb.add_option("--compare-token", options.compare_token,
                  "The word to look from in the second text (default: that of --token)")
      ->type_name("WORD");
  verb.add_option("--pieces", options.pieces,
                  "Force the split into tokens: 'a|b|c', pieces of the vocabulary")
      ->type_name("PIECES");
  verb.add_option("--qkv", options.qkv, "Look at q, k[, v] that any program saved (NPZ); no model is needed")
      ->type_name("FILE");
  verb.add_option("--as", options.as,
                  "Beside softmax: block, nystrom, linformer, lsh, linear, additive or cosine attention over "
                  "the same q and "
                  "k; block=32 says its block, landmarks, rank or buckets")
      ->type_name("FORM");
  verb.add_flag("--truncate", options.truncate,
                "Cut a text that is longer than the model reads (and say so)");
  verb.add_option("--precision", options.precision, "Keep q and k in f32 (exact) or f16 (half the memory)")
      ->check(CLI::IsMember({"f32", "f16"}))
      ->capture_default_str();
  verb.add_flag("--json", options.json, "Print JSON");
  verb.add_option("--npz", options.npz,
                  "Write q, k, v and log-sum-exp to FILE (NumPy); of a translator, the weights of all heads")
      ->type_name("FILE");
  verb.add_option("--png", options.png, "Draw the head of --layer and --head, or all heads, into FILE")
      ->type_name("FILE");
  verb.add_option("--html", options.html, "Write a page with all heads to FILE")->type_name("FILE");
  verb.footer(
      "Examples:\n"
      "  regard look \"The animal didn't cross the street because it was too tired\" --token it\n"
      "  regard look --token tired --html both.html \"The animal was too tired\" --compare \"The animal was "
      "tired\"\n"
      "  regard look --model e5 '我爱你' --hide-special\n"
      "  regard look --model smollm2 --file chapter.txt --received --token love\n"
      "  regard look --qkv heads.npz --as block=16");
}

void check(Look& options) {
  sort_out_tokens(options);
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
  if (!options.as.empty()) lens::form_choice(options.as);  // a wrong name is told before a model is read
  refuse(!options.as.empty() &&
             (!options.compare.empty() || options.trace || !options.html.empty() || !options.png.empty()),
         "--as prints numbers or JSON; leave --compare, --trace, --html and --png out");
  refuse(!options.compare_token.empty() && options.compare.empty(),
         "--compare-token names a word of the text that --compare gives, and there is none");
  const bool one_text =
      options.trace || options.layer.has_value() || !options.npz.empty() || !options.png.empty();
  refuse(!options.compare.empty() && one_text,
         "--compare shows two texts side by side, printed or with --html; leave --layer, --trace, --npz and "
         "--png out");
}

lens::Precision precision_of(const Look& options) {
  return options.precision == "f16" ? lens::Precision::f16 : lens::Precision::f32;
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

}  // namespace regard::cli
