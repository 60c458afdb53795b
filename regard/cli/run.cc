#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/cli/interrupt.h"
#include "regard/cli/kv_dtype.h"
#include "regard/cli/output.h"
#include "regard/cli/precision.h"
#include "regard/cli/progress.h"
#include "regard/cli/sampling.h"
#include "regard/cli/text_input.h"
#include "regard/cli/verbs.h"
#include "regard/model/generate.h"
#include "regard/model/model.h"
#include "regard/text/stream_decoder.h"

// run: a language model continues a prompt, or answers.
namespace regard::cli {
namespace {

struct Run {
  TextInput input;
  std::string model = "smollm2";
  std::string system;
  std::string precision;
  bool chat = false;
  bool ignore_end = false;
  bool json = false;
  int64_t max_tokens = 256;
  kernel::CacheType kv_type = kernel::CacheType::f32;
  model::Sampling sampling;
};

text::Encoding encode_prompt(const model::Loaded& loaded, const Run& options) {
  const std::string prompt = options.input.text();
  if (!options.chat) {
    if (!options.system.empty()) throw std::invalid_argument("--system goes with --chat");
    return loaded.tokenizer->encode(prompt);
  }
  std::vector<text::Message> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", prompt});
  return loaded.tokenizer->encode(loaded.tokenizer->apply_chat_template(messages),
                                  {.add_special = false, .parse_special = true});
}

double rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

void run(const Run& options) {
  const model::Loaded loaded = model::load(options.model, {.precision = precision_of(options.precision)});
  const text::Encoding prompt = encode_prompt(loaded, options);
  catch_interrupts();

  model::GenerateOptions generate;
  generate.max_tokens = options.max_tokens;
  generate.sampling = options.sampling;
  generate.cache_type = options.kv_type;
  if (!options.ignore_end && loaded.tokenizer->special_ids().eos) {
    generate.stop_ids.push_back(*loaded.tokenizer->special_ids().eos);
  }
  text::StreamDecoder decoder(*loaded.tokenizer);
  std::string text;
  const auto emit = [&](const std::string& piece) {
    if (options.json) {
      text += piece;
      return;
    }
    std::cout << piece;
    flush_output();
  };
  auto progress = std::make_unique<Progress>("reading", "tokens");
  generate.on_prompt = [&](int64_t done, int64_t all) {
    stop_if_interrupted();
    progress->update(done, all);
  };
  generate.on_token = [&](int64_t id) {
    progress.reset();
    emit(decoder.push(id));
    return !interrupted();
  };
  const model::Generation made = model::generate(*loaded.model, prompt.ids, generate);
  emit(decoder.finish());

  const auto tokens = static_cast<int64_t>(made.ids.size());
  const double prompt_rate = rate(made.prompt_tokens, made.prompt_seconds);
  const double decode_rate = rate(tokens - 1, made.decode_seconds);
  if (options.json) {
    std::cout << nlohmann::json{{"text", text},
                                {"ids", made.ids},
                                {"prompt_tokens", made.prompt_tokens},
                                {"tokens", tokens},
                                {"stopped", made.stopped},
                                {"precision", model::name(loaded.precision)},
                                {"prompt_tokens_per_second", prompt_rate},
                                {"decode_tokens_per_second", decode_rate}}
                     .dump()
              << '\n';
  } else {
    std::cout << '\n';
  }
  std::cout.flush();
  std::cerr << std::fixed << std::setprecision(1) << "precision " << model::name(loaded.precision) << "; "
            << made.prompt_tokens << " prompt tokens at " << prompt_rate << " tokens/s; " << tokens
            << " tokens at " << decode_rate << " tokens/s ("
            << (interrupted()  ? "interrupted"
                : made.stopped ? "the model ended the text"
                               : "ended by the length")
            << ")\n";
}

}  // namespace

void add_run(CLI::App& app) {
  auto options = std::make_shared<Run>();
  CLI::App* verb = app.add_subcommand("run", "Let a language model continue a prompt, or answer it");
  options->input.add_to(*verb, "Prompt");
  verb->add_option("--model", options->model,
                   "Model: a name of 'regard models', a folder, a GGUF file or ORG/NAME")
      ->capture_default_str();
  verb->add_flag("--chat", options->chat,
                 "The prompt is a message to a chat model (uses the model's template)");
  verb->add_option("--system", options->system, "With --chat: the system message");
  verb->add_option("-n,--max-tokens", options->max_tokens, "Stop after so many new tokens")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_sampling(*verb, options->sampling, "0: always the most likely token");
  add_kv_dtype(*verb, options->kv_type);
  add_precision(*verb, options->precision, "int8 for a file in blocks, else f32");
  verb->add_flag("--ignore-end", options->ignore_end, "Go on when the model ends the text");
  verb->add_flag("--json", options->json, "One JSON object: text, ids, speeds");
  verb->footer("Example: regard run --chat 'Why is the sky blue?'");
  verb->callback([options] { run(*options); });
}

}  // namespace regard::cli
