#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "regard/cli/interrupt.h"
#include "regard/cli/look_options.h"
#include "regard/cli/look_output.h"
#include "regard/cli/look_see.h"
#include "regard/cli/look_translation.h"
#include "regard/cli/verbs.h"
#include "regard/model/load_translator.h"
#include "regard/model/model.h"

// look: what the heads of a model do with a text.
namespace regard::cli {
namespace {

Seen look_at_second(const model::Loaded& loaded, const Look& options) {
  Look second = options;
  second.pieces.clear();
  second.input = {};
  second.input.argument = options.compare;
  if (!options.compare_token.empty()) second.token = options.compare_token;
  try {
    return look_at(loaded, second, options.compare);
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument(std::string("--compare: ") + e.what());
  }
}

void run(Look& options) {
  check(options);
  catch_interrupts();
  Seen seen;
  std::optional<Seen> other;
  if (!options.qkv.empty()) {
    seen = look_at_file(options);
  } else {
    // The text comes first: a mistake there should not wait for the model.
    const std::string text =
        options.pieces.empty() ? options.input.text() : text::Tokenizer::forced_text(options.pieces);
    if (model::is_translator(options.model)) return look_at_translator(options, text);
    const model::Loaded loaded = model::load(options.model);
    seen = look_at(loaded, options, text);
    if (!options.compare.empty()) {
      other = look_at_second(loaded, options);
    }
  }
  show(options, seen, other ? &*other : nullptr);
  write_files(options, seen, other ? &*other : nullptr);
}

}  // namespace

void add_look(CLI::App& app) {
  auto options = std::make_shared<Look>();
  CLI::App* verb = app.add_subcommand("look", "What the heads of a model do with a text");
  add_options(*verb, *options);
  verb->callback([options] { run(*options); });
}

}  // namespace regard::cli
