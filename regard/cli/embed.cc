#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regard/cli/interrupt.h"
#include "regard/cli/numbers.h"
#include "regard/cli/output.h"
#include "regard/cli/progress.h"
#include "regard/cli/text_input.h"
#include "regard/cli/unreadable.h"
#include "regard/cli/verbs.h"
#include "regard/io/npz.h"
#include "regard/model/embed.h"
#include "regard/model/model.h"

// embed: one vector per line of text.
namespace regard::cli {
namespace {

constexpr size_t kLinesAtOnce = 1024;  // vectors are printed as they come, whatever the input's length

struct Embed {
  TextInput input;
  std::string model = "minilm";
  std::string npy;
  std::optional<std::string> prefix;
  std::string pooling;
  bool raw = false;
  bool quantize = false;
  bool truncate = false;
  bool jsonl = false;
  bool json = false;
};

void run(const Embed& options) {
  const model::Loaded loaded = model::load(
      options.model, {.precision = options.quantize ? model::Precision::int8 : model::Precision::f32});
  model::EmbedOptions embed;
  embed.truncate = options.truncate;
  embed.prefix = options.prefix;
  if (options.pooling == "mean") embed.pooling = model::Pooling::mean;
  if (options.pooling == "cls") embed.pooling = model::Pooling::cls;
  if (options.raw) embed.normalize = false;
  catch_interrupts();

  const bool to_file = !options.npy.empty();
  std::vector<float> all;
  std::vector<std::string> texts;
  std::vector<std::string> cut;
  int64_t done = 0;
  Unreadable unreadable(loaded);
  std::optional<Progress> progress;
  if (to_file) progress.emplace("embedding", "texts");
  const auto flush = [&] {
    for (const std::string& text : texts) unreadable.count(text);
    embed.progress = [&](int64_t count, int64_t of) {
      stop_if_interrupted();
      if (progress) progress->update(done + count, done + of);
    };
    const model::Embeddings made = model::embed(loaded, texts, embed);
    for (const int64_t index : made.truncated) cut.push_back(std::to_string(done + index + 1));
    const at::Tensor vectors = made.vectors.contiguous();
    const auto width = static_cast<size_t>(vectors.size(1));
    const std::span<const float> values(vectors.const_data_ptr<float>(),
                                        static_cast<size_t>(vectors.numel()));
    if (to_file) {
      all.insert(all.end(), values.begin(), values.end());
    } else {
      for (size_t i = 0; i < texts.size(); ++i) {
        std::cout << "{\"embedding\":" << json_array(values.subspan(i * width, width)) << "}\n";
      }
      flush_output();
    }
    done += static_cast<int64_t>(texts.size());
    texts.clear();
  };
  options.input.lines([&](const std::string& line, size_t number) {
    texts.push_back(options.jsonl ? json_line_string(line, number) : line);
    if (texts.size() == kLinesAtOnce) flush();
  });
  if (!texts.empty()) flush();
  progress.reset();

  if (to_file) {
    const int64_t width = loaded.model->config().width;
    io::write_npy(options.npy, io::view("", {done, width}, all));
    std::cerr << options.npy << ": " << done << " vectors of " << width << " values\n";
  }
  if (!cut.empty()) {
    std::cerr << "regard: " << cut.size() << (cut.size() == 1 ? " text was" : " texts were")
              << " cut to the length that the model takes (the first: line " << cut.front() << ")\n";
  }
  unreadable.warn();
}

}  // namespace

void add_embed(CLI::App& app) {
  auto options = std::make_shared<Embed>();
  CLI::App* verb = app.add_subcommand("embed", "One vector per line of text, as JSON lines or NPY");
  options->input.add_to(*verb, "Text to embed, a vector per line");
  verb->add_option("--model", options->model, "Model: a name of 'regard models', a folder or ORG/NAME")
      ->capture_default_str();
  verb->add_option("--npy", options->npy, "Write all vectors to FILE (NumPy) instead of printing them")
      ->type_name("FILE");
  verb->add_option("--prefix", options->prefix,
                   "Put before each text (default: what the model was trained with)");
  verb->add_option("--pooling", options->pooling, "mean or cls (default: as the model says)")
      ->check(CLI::IsMember({"mean", "cls"}));
  verb->add_flag("--quantize", options->quantize,
                 "Products with weights of 7 bits (or the file's blocks) and int8 inputs: faster");
  verb->add_flag("--raw", options->raw, "Do not scale the vectors to length 1");
  verb->add_flag("--truncate", options->truncate,
                 "Cut texts that are longer than the model takes (and say so)");
  verb->add_flag("--jsonl", options->jsonl, "Each line of input is a JSON string");
  verb->add_flag("--json", options->json, "JSON lines (the default)");
  verb->footer("Example: regard embed --file sentences.txt --npy vectors.npy");
  verb->callback([options] { run(*options); });
}

}  // namespace regard::cli
