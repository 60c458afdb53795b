#include <c10/core/InferenceMode.h>

#include <cmath>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/cli/interrupt.h"
#include "regard/cli/kv_dtype.h"
#include "regard/cli/output.h"
#include "regard/cli/precision.h"
#include "regard/cli/progress.h"
#include "regard/cli/text_input.h"
#include "regard/cli/verbs.h"
#include "regard/io/npz.h"
#include "regard/model/generate.h"
#include "regard/model/model.h"
#include "regard/text/display.h"

// score: how likely a language model finds a text, token by token.
namespace regard::cli {
namespace {

struct Score {
  TextInput input;
  std::string model = "smollm2";
  std::string logits;
  kernel::CacheType kv_type = kernel::CacheType::f32;
  std::string precision = "f32";
  bool truncate = false;
  bool per_token = false;
  bool json = false;
  bool jsonl = false;
};

struct Scored {
  text::Encoding encoding;
  std::vector<double> losses;  // of tokens 1, 2, ...
  double mean() const {
    return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
  }
};

Scored score(const model::Loaded& loaded, const std::string& text, const Score& options) {
  Scored scored;
  scored.encoding = loaded.tokenizer->encode(text);
  auto& ids = scored.encoding.ids;
  const auto limit = static_cast<size_t>(loaded.model->config().max_positions);
  if (ids.size() > limit) {
    const std::string numbers =
        std::to_string(ids.size()) + " tokens, the model takes " + std::to_string(limit);
    if (!options.truncate) throw std::invalid_argument("the text has " + numbers + "; --truncate cuts it");
    std::cerr << "regard: the text has " << numbers << "; the rest is cut off\n";
    scored.encoding = loaded.tokenizer->encode(text, {.max_length = limit});
  }
  if (ids.size() < 2) {
    throw std::invalid_argument("a text of at least 2 tokens is needed, this one has " +
                                std::to_string(ids.size()));
  }
  Progress progress("scoring", "layers");
  layer::Context context;
  context.progress_self = &progress;
  context.progress = [](void* self, int64_t done, int64_t all) {
    stop_if_interrupted();
    static_cast<Progress*>(self)->update(done, all);
  };
  // In f32 a cache would change nothing but the time.
  std::unique_ptr<layer::KvCache> cache;
  if (options.kv_type != kernel::CacheType::f32) {
    cache = loaded.model->make_cache(1, static_cast<int64_t>(ids.size()), options.kv_type);
  }
  context.cache = cache.get();
  scored.losses = model::token_losses(*loaded.model, ids, context);
  return scored;
}

nlohmann::json to_json(const Scored& scored) {
  return {{"tokens", scored.encoding.size()}, {"ids", scored.encoding.ids},
          {"pieces", scored.encoding.pieces}, {"nll", scored.losses},
          {"mean_nll", scored.mean()},        {"perplexity", std::exp(scored.mean())}};
}

void print(const model::Loaded& loaded, const Scored& scored, const std::string& text, bool per_token) {
  if (per_token) {
    const std::vector<std::string> shown = loaded.tokenizer->display_pieces(scored.encoding, text);
    std::cout << "     loss  probability  token\n" << std::fixed;
    for (size_t i = 0; i < scored.losses.size(); ++i) {
      const double loss = scored.losses[i];
      std::cout << std::setprecision(4) << std::setw(9) << loss << std::setprecision(5) << std::setw(13)
                << std::exp(-loss) << "  " << shown[i + 1] << '\n';
    }
  }
  const double bits = std::accumulate(scored.losses.begin(), scored.losses.end(), 0.0) / std::log(2.0);
  std::cout << std::defaultfloat << std::setprecision(6) << scored.encoding.size() << " tokens; loss "
            << scored.mean() << " nats per token, perplexity " << std::exp(scored.mean()) << ", "
            << bits / static_cast<double>(text.size())
            << " bits per byte (the first token is not predicted)\n";
}

void write_logits(const model::Loaded& loaded, const Scored& scored, const std::string& path) {
  c10::InferenceMode guard;
  model::Input input;
  const auto length = static_cast<int64_t>(scored.encoding.size());
  input.ids = at::tensor(at::ArrayRef<int64_t>(scored.encoding.ids)).view({1, length});
  layer::Context context;
  const at::Tensor logits = loaded.model->logits(loaded.model->hidden(input, context)).contiguous();
  const std::span<const float> values(logits.const_data_ptr<float>(), static_cast<size_t>(logits.numel()));
  const std::vector<io::Tensor> arrays = {io::view("ids", {length}, scored.encoding.ids),
                                          io::view("logits", {length, logits.size(-1)}, values)};
  io::write_npz(path, arrays, io::Compression::none);
  std::cerr << path << ": logits of " << length << " positions\n";
}

void run(const Score& options) {
  if (options.jsonl && !options.logits.empty())
    throw std::invalid_argument("--logits takes one text, not --jsonl");
  const model::Loaded loaded = model::load(options.model, {.precision = precision_of(options.precision)});
  if (!loaded.model->has_head() || !loaded.model->config().causal) {
    throw std::invalid_argument("'" + options.model +
                                "' is no language model that continues texts; try --model smollm2");
  }
  catch_interrupts();
  if (options.jsonl) {
    options.input.lines([&](const std::string& line, size_t number) {
      const Scored scored = score(loaded, json_line_string(line, number), options);
      std::cout << nlohmann::json{{"nll", scored.losses},
                                  {"tokens", scored.encoding.size()},
                                  {"perplexity", std::exp(scored.mean())}}
                       .dump()
                << '\n';
      flush_output();
    });
    return;
  }
  const std::string text = options.input.text();
  const Scored scored = score(loaded, text, options);
  if (options.json) {
    std::cout << to_json(scored).dump() << '\n';
  } else {
    print(loaded, scored, text, options.per_token);
  }
  if (!options.logits.empty()) write_logits(loaded, scored, options.logits);
}

}  // namespace

void add_score(CLI::App& app) {
  auto options = std::make_shared<Score>();
  CLI::App* verb = app.add_subcommand("score", "Loss per token and perplexity of a text");
  options->input.add_to(*verb, "Text to score");
  verb->add_option("--model", options->model,
                   "Model: a name of 'regard models', a folder, a GGUF file or ORG/NAME")
      ->capture_default_str();
  add_precision(*verb, options->precision, "f32");
  verb->add_flag("--per-token", options->per_token, "Print the loss and probability of every token");
  verb->add_option("--logits", options->logits, "Write ids and logits of every position to FILE (NumPy)")
      ->type_name("FILE");
  add_kv_dtype(*verb, options->kv_type);
  verb->add_flag("--truncate", options->truncate,
                 "Cut a text that is longer than the model takes (and say so)");
  verb->add_flag("--json", options->json, "One JSON object: ids, pieces, nll per token, perplexity");
  verb->add_flag("--jsonl", options->jsonl, "One JSON string a line in, one JSON object a line out");
  verb->footer("Example: regard score --per-token 'The capital of France is Paris.'");
  verb->callback([options] { run(*options); });
}

}  // namespace regard::cli
