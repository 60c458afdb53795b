#include "regard/lens/record.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "regard/text/words.h"

namespace regard::lens {
namespace {

// Thrown through the model when nothing is left to record.
struct Enough {};

std::vector<std::byte> pack(const at::Tensor& tensor, Precision precision) {
  const at::Tensor kept =
      tensor.to(at::kCPU, precision == Precision::f32 ? at::kFloat : at::kHalf).contiguous();
  const auto* bytes = static_cast<const std::byte*>(kept.const_data_ptr());
  return {bytes, bytes + kept.nbytes()};
}

std::vector<float> floats(const at::Tensor& tensor) {
  const at::Tensor kept = tensor.to(at::kCPU, at::kFloat).contiguous();
  const auto* data = kept.const_data_ptr<float>();
  return {data, data + kept.numel()};
}

class TextRecorder final : public layer::Recorder {
 public:
  TextRecorder(const RecordOptions& options, std::vector<uint8_t> wanted, int64_t tokens)
      : options_(options), wanted_(std::move(wanted)), tokens_(tokens) {}

  bool wants(int64_t layer) const override { return wanted_.at(static_cast<size_t>(layer)) != 0; }

  void record(const layer::AttentionCall& call) override {
    if (call.q.size(0) != 1 || call.q.size(2) != tokens_ || call.k.size(2) != tokens_ ||
        call.first_query != 0) {
      throw std::invalid_argument(
          "a recording takes one text in one call: got " + std::to_string(call.q.size(0)) + " texts with " +
          std::to_string(call.q.size(2)) + " queries from position " + std::to_string(call.first_query) +
          " and " + std::to_string(call.k.size(2)) + " keys");
    }
    RecordedLayer kept;
    kept.layer = call.layer;
    kept.spec = *call.spec;
    if (!kept.spec.scale) kept.spec.scale = 1.0F / std::sqrt(static_cast<float>(call.q.size(3)));
    kept.heads = call.q.size(1);
    kept.kv_heads = call.k.size(1);
    kept.tokens = tokens_;
    kept.key_size = call.q.size(3);
    kept.precision = options_.precision;
    kept.q = pack(call.q, options_.precision);
    kept.k = pack(call.k, options_.precision);
    if (options_.keep_values) {
      kept.value_size = call.v.size(3);
      kept.v = pack(call.v, options_.precision);
    }
    if (options_.keep_inputs && call.x.defined()) {
      kept.width = call.x.size(-1);
      kept.x = floats(call.x);
    }
    kept.lse = floats(call.lse);
    layers.push_back(std::move(kept));
  }

  std::vector<RecordedLayer> layers;

 private:
  const RecordOptions& options_;
  std::vector<uint8_t> wanted_;
  int64_t tokens_;
};

struct Progress {
  const RecordOptions* options;
  int64_t last_wanted;

  static void step(void* self, int64_t done, int64_t all) {
    const auto& progress = *static_cast<const Progress*>(self);
    const int64_t needed = progress.last_wanted + 1;
    if (progress.options->progress) progress.options->progress(std::min(done, needed), std::min(all, needed));
    if (done == needed && done < all) throw Enough{};
  }
};

// Line ends that a model reads as tokens of their own: no word for a reader.
bool is_white_space(std::string_view text) {
  return !text.empty() && text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos;
}

bool is_apostrophe(std::string_view text) {
  return text == "'" || text == "\u2019";
}

bool touch(const text::Word& left, const text::Word& right) {
  return left.text_index == right.text_index && left.bytes.end == right.bytes.begin;
}

std::vector<uint8_t> wanted_layers(const std::vector<int64_t>& chosen, int64_t layers) {
  std::vector<uint8_t> wanted(static_cast<size_t>(layers), chosen.empty() ? 1 : 0);
  for (const int64_t layer : chosen) {
    if (layer < 0 || layer >= layers) {
      throw std::invalid_argument("layer " + std::to_string(layer) + ": the model has layers 0 to " +
                                  std::to_string(layers - 1));
    }
    wanted[static_cast<size_t>(layer)] = 1;
  }
  return wanted;
}

}  // namespace

std::vector<Token> describe_tokens(const text::Tokenizer& tokenizer, const text::Encoding& encoding,
                                   std::string_view text) {
  const std::vector<std::string> shown = tokenizer.display_pieces(encoding, text);
  const std::optional<text::TokenId> unknown = tokenizer.special_ids().unk;
  std::vector<Token> tokens(encoding.size());
  for (size_t i = 0; i < encoding.size(); ++i) {
    tokens[i].id = encoding.ids[i];
    tokens[i].piece = encoding.pieces[i];
    tokens[i].text = shown[i];
    tokens[i].begin = static_cast<int64_t>(encoding.offsets[i].begin);
    tokens[i].end = static_cast<int64_t>(encoding.offsets[i].end);
    tokens[i].unknown = unknown && encoding.ids[i] == *unknown;
    // An unknown part of the text is not a token that the tokenizer put there.
    tokens[i].special = encoding.special[i] != 0 && !tokens[i].unknown;
  }
  for (const text::Word& word : text::group_words(encoding, text)) {
    const bool blank = is_white_space(text.substr(word.bytes.begin, word.bytes.end - word.bytes.begin));
    for (const size_t token : word.tokens) tokens[token].punctuation = word.is_punctuation || blank;
  }
  return tokens;
}

std::vector<Unit> describe_words(const text::Encoding& encoding, std::string_view text) {
  const std::vector<text::Word> words = text::group_words(encoding, text);
  const auto plain = [&](size_t i) {
    return i < words.size() && !words[i].is_special && !words[i].is_punctuation;
  };
  std::vector<Unit> units;
  for (size_t i = 0; i < words.size(); ++i) {
    const text::Word& word = words[i];
    Unit unit{word.text, static_cast<int64_t>(word.tokens.front()), static_cast<int64_t>(word.tokens.size()),
              word.is_special,
              word.is_punctuation ||
                  is_white_space(text.substr(word.bytes.begin, word.bytes.end - word.bytes.begin))};
    // The tokenizer's punctuation is not always a reader's: didn ' t is one word.
    while (plain(i) && plain(i + 2) && is_apostrophe(words[i + 1].text) && touch(words[i], words[i + 1]) &&
           touch(words[i + 1], words[i + 2])) {
      for (const size_t next : {i + 1, i + 2}) {
        unit.text += words[next].text;
        unit.count += static_cast<int64_t>(words[next].tokens.size());
      }
      i += 2;
    }
    units.push_back(std::move(unit));
  }
  return units;
}

int64_t recording_bytes(const model::Config& config, int64_t tokens, const RecordOptions& options) {
  const int64_t layers = options.layers.empty() ? config.layers : static_cast<int64_t>(options.layers.size());
  const int64_t size = options.precision == Precision::f32 ? 4 : 2;
  const int64_t per_token =
      (config.heads + config.kv_heads * (options.keep_values ? 2 : 1)) * config.head_size * size +
      config.heads * 4 + (options.keep_inputs ? config.width * 4 : 0);
  return layers * tokens * per_token;
}

Recording record(const model::Loaded& loaded, const text::Encoding& encoding, std::string_view text,
                 const RecordOptions& options) {
  const model::Config& config = loaded.model->config();
  const auto tokens = static_cast<int64_t>(encoding.size());
  if (tokens == 0) throw std::invalid_argument("the text is empty: there is no token to look at");
  if (config.max_positions > 0 && tokens > config.max_positions) {
    throw std::invalid_argument("the text has " + std::to_string(tokens) + " tokens; " + loaded.name +
                                " reads at most " + std::to_string(config.max_positions));
  }
  Recording recording;
  recording.model = loaded.name;
  recording.architecture = config.architecture;
  recording.text = text;
  recording.model_layers = config.layers;
  recording.causal = config.causal;
  recording.precision = options.precision;
  recording.tokens = describe_tokens(*loaded.tokenizer, encoding, text);
  recording.words = describe_words(encoding, text);

  std::vector<uint8_t> wanted = wanted_layers(options.layers, config.layers);
  int64_t last_wanted = config.layers - 1;
  while (last_wanted > 0 && wanted[static_cast<size_t>(last_wanted)] == 0) --last_wanted;
  TextRecorder recorder(options, std::move(wanted), tokens);

  const at::NoGradGuard no_grad;
  model::Input input;
  input.ids = at::tensor(encoding.ids, at::kLong).unsqueeze(0);
  if (std::any_of(encoding.type_ids.begin(), encoding.type_ids.end(), [](uint8_t t) { return t != 0; })) {
    input.type_ids =
        at::tensor(std::vector<int64_t>(encoding.type_ids.begin(), encoding.type_ids.end()), at::kLong)
            .unsqueeze(0);
  }
  Progress progress{&options, last_wanted};
  layer::Context context;
  context.recorder = &recorder;
  context.progress = &Progress::step;
  context.progress_self = &progress;
  try {
    loaded.model->hidden(input, context);
  } catch (const Enough&) {
  }
  recording.layers = std::move(recorder.layers);
  check(recording);
  return recording;
}

}  // namespace regard::lens
