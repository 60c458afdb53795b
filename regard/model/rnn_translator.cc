#include "regard/model/rnn_translator.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "regard/layer/dropout.h"
#include "regard/model/gru.h"
#include "regard/model/rnn_attention.h"
#include "regard/model/translator_check.h"

namespace regard::model {
namespace {

using Sources = RnnAttentionPart::Sources;

// y = x W^T + b of dense tensors; the bias may be undefined.
struct Affine {
  Affine() = default;
  Affine(const WeightSource& weights, const std::string& name, int64_t rows, int64_t columns, bool with_bias)
      : weight(dense_matrix(weights, name + ".weight", rows, columns)) {
    if (with_bias) bias = weights.vector(name + ".bias", rows);
  }
  at::Tensor operator()(const at::Tensor& x) const {
    return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
  }
  at::Tensor weight, bias;
};

struct Parts {
  Parts(const RnnTranslatorConfig& config, const WeightSource& weights);

  layer::Weight source_words, target_words;  // [vocabulary, embedding]
  std::optional<BidirectionalGru> encoder;
  std::vector<Affine> initial;  // of each layer of the decoder
  std::vector<Gru> decoder;
  Affine of_state, of_word;  // the readout
  layer::Weight generator;   // [vocabulary, readout]
  at::Tensor generator_bias;
  // With attention:
  std::optional<RnnAttentionPart> attention;
  Affine to_gates;    // of what was found (additive) or of the last readout (input feeding)
  Affine to_readout;  // of what was found
};

Parts::Parts(const RnnTranslatorConfig& config, const WeightSource& weights) {
  const int64_t words = config.embedding, width = config.width, source = 2 * config.encoder_width;
  const auto table = [&](const std::string& name) { return weights.table(name, config.vocabulary, words); };
  if (config.tied) {
    source_words = target_words = table("embedding.weight");
  } else {
    source_words = table("encoder.embedding.weight");
    target_words = table("decoder.embedding.weight");
  }
  encoder.emplace("encoder.layers", config.encoder_layers, words, config.encoder_width, weights);
  for (int64_t i = 0; i < config.decoder_layers; ++i) {
    initial.emplace_back(weights, "decoder.initial." + std::to_string(i), width, source, true);
    decoder.emplace_back("decoder.layers." + std::to_string(i), i == 0 ? words : width, width, weights);
  }
  of_state = Affine(weights, "readout.state", config.readout, width, true);
  of_word = Affine(weights, "readout.word", config.readout, words, false);
  if (config.tied) {
    generator = target_words;
  } else {
    generator = weights.matrix("generator.weight", config.vocabulary, config.readout);
    generator_bias = weights.vector("generator.bias", config.vocabulary);
  }
  if (config.attention == RnnAttention::none) return;
  attention.emplace(config, source, weights);
  to_readout = Affine(weights, "attention.readout", config.readout, source, false);
  if (config.attention == RnnAttention::additive)
    to_gates = Affine(weights, "attention.gates", 3 * width, source, false);
  if (config.input_feeding) to_gates = Affine(weights, "attention.gates", 3 * width, config.readout, false);
}

struct Encoded {
  at::Tensor states;   // [B, S, 2 encoder_width], 0 on padding
  at::Tensor summary;  // [B, 2 encoder_width]: last forward, first backward
};

// What a decoder knows before a step: of each row.
struct State {
  std::vector<at::Tensor> layers;  // [N, width] each
  at::Tensor fed;                  // [N, readout]: the last readout; with input feeding
};

class RnnDecoding final : public Translator::Decoding {
 public:
  void select(const at::Tensor& rows) override {
    const int64_t count = source_of.size(0);
    for (const int64_t row : row_numbers(rows)) {
      if (row < 0 || row >= count) {
        throw std::invalid_argument("translator: row " + std::to_string(row) + " is selected; there are " +
                                    std::to_string(count) + " rows");
      }
    }
    for (at::Tensor& layer : state.layers) layer = layer.index_select(0, rows);
    if (state.fed.defined()) state.fed = state.fed.index_select(0, rows);
    source_of = source_of.index_select(0, rows);
    if (sources.keys.defined()) group();
  }

  // Rows that follow each other and have one source look at it together, so that nothing is repeated for
  // them; where their numbers differ each row gets its own copy.
  void group() {
    const std::vector<int64_t> of = row_numbers(source_of);
    std::vector<int64_t> runs, counts;
    for (size_t i = 0; i < of.size(); ++i) {
      if (i == 0 || of[i] != of[i - 1]) {
        runs.push_back(of[i]);
        counts.push_back(0);
      }
      ++counts.back();
    }
    bool even = true;
    for (const int64_t count : counts) even = even && count == counts[0];
    const std::vector<int64_t>& wanted = even ? runs : of;
    if (wanted == looked_at) return;
    const at::Tensor index = at::tensor(wanted, at::kLong);
    now = {sources.keys.index_select(0, index), sources.values.index_select(0, index),
           sources.lengths.defined() ? sources.lengths.index_select(0, index) : at::Tensor()};
    looked_at = wanted;
  }

  State state;
  at::Tensor source_of;  // [N] int64
  int64_t capacity = 0, written = 0;
  Sources sources;  // of all; undefined keys without attention
  Sources now;      // of the groups of rows
  std::vector<int64_t> looked_at;
};

class RnnTranslator final : public Translator {
 public:
  RnnTranslator(const RnnTranslatorConfig& config, const WeightSource& weights)
      : config_(config), parts_(config, weights) {}

  int64_t vocabulary() const override { return config_.vocabulary; }
  int64_t max_positions() const override { return config_.max_positions; }
  int64_t cross_heads() const override { return parts_.attention ? 1 : 0; }
  std::vector<std::string> attention_names() const override { return {}; }

  at::Tensor hidden(const Source& source, const at::Tensor& target, layer::Context& context) override {
    const at::AutoGradMode grad(context.training && at::GradMode::is_enabled());
    check_source(source, config_.max_positions);
    check_target(target, source, config_.max_positions);
    const Encoded encoded = encode(source, context);
    Sources sources;
    if (parts_.attention) sources = parts_.attention->sources(encoded.states, source.lengths);
    State state = first_state(encoded, target.size(0));
    const at::Tensor words = embedded(parts_.target_words, target, context);
    return recurrent() ? by_steps(words, state, sources, context) : at_once(words, state, sources, context);
  }

  at::Tensor logits(const at::Tensor& hidden) override {
    return parts_.generator.linear(hidden, parts_.generator_bias);
  }

  std::unique_ptr<Translator::Decoding> begin(const Source& source, int64_t capacity,
                                              layer::Context& context) override {
    const at::NoGradGuard no_grad;
    check_source(source, config_.max_positions);
    check_capacity(capacity, config_.max_positions);
    const Encoded encoded = encode(source, context);
    auto decoding = std::make_unique<RnnDecoding>();
    decoding->state = first_state(encoded, source.ids.size(0));
    decoding->source_of = at::arange(source.ids.size(0), at::kLong);
    decoding->capacity = capacity;
    if (parts_.attention) {
      decoding->sources = decoding->now = parts_.attention->sources(encoded.states, source.lengths);
      decoding->looked_at = row_numbers(decoding->source_of);
    }
    return decoding;
  }

  Step step(Translator::Decoding& begun, const at::Tensor& ids, bool want_weights) override {
    const at::NoGradGuard no_grad;
    auto* decoding = dynamic_cast<RnnDecoding*>(&begun);
    if (decoding == nullptr) refuse_decoding();
    check_step(ids, decoding->source_of.size(0), decoding->written, decoding->capacity);
    ++decoding->written;
    layer::Context context;
    const at::Tensor word = parts_.target_words.gather(ids).view({ids.size(0), config_.embedding});
    Step step;
    const Turn turn = advance(parts_.decoder[0].gates(word), decoding->state, decoding->now,
                              want_weights && parts_.attention ? &step.weights : nullptr, context);
    const at::Tensor out = readout(turn.state, word, turn.found, context);
    if (config_.input_feeding) decoding->state.fed = out;
    step.logits = logits(out);
    return step;
  }

 private:
  // What a step leaves behind for the readout.
  struct Turn {
    at::Tensor state;  // [N, width] of the last layer
    at::Tensor found;  // [N, source width]; undefined without attention
  };

  bool additive() const { return config_.attention == RnnAttention::additive; }
  // Whether a step needs more of the one before than the GRU's state.
  bool recurrent() const { return additive() || config_.input_feeding; }

  at::Tensor embedded(const layer::Weight& words, const at::Tensor& ids, layer::Context& context) const {
    return layer::dropout(words.gather(ids).view({ids.size(0), ids.size(1), config_.embedding}),
                          config_.dropout, context);
  }

  Encoded encode(const Source& source, layer::Context& context) const {
    if (context.cache != nullptr) refuse_cache();
    const at::Tensor x = embedded(parts_.source_words, source.ids, context);
    const auto read = parts_.encoder->forward(x, source.lengths, {}, config_.dropout, context);
    const at::Tensor last = read.last.narrow(0, read.last.size(0) - 2, 2);
    return {read.states, last.transpose(0, 1).reshape({x.size(0), 2 * config_.encoder_width})};
  }

  State first_state(const Encoded& encoded, int64_t rows) const {
    State state;
    for (const Affine& initial : parts_.initial) state.layers.push_back(at::tanh(initial(encoded.summary)));
    if (config_.input_feeding) state.fed = at::zeros({rows, config_.readout}, encoded.summary.options());
    return state;
  }

  // One step of all layers; gates: of the last word, for the first of them.
  Turn advance(at::Tensor gates, State& state, const Sources& sources, at::Tensor* weights,
               layer::Context& context) const {
    Turn turn;
    if (additive()) turn.found = look(state.layers.back(), sources, weights);
    if (additive()) gates = gates + parts_.to_gates(turn.found);
    if (config_.input_feeding) gates = gates + parts_.to_gates(state.fed);
    for (size_t i = 0; i < parts_.decoder.size(); ++i) {
      if (i > 0)
        gates = parts_.decoder[i].gates(layer::dropout(state.layers[i - 1], config_.dropout, context));
      state.layers[i] = parts_.decoder[i].step(gates, state.layers[i]);
    }
    turn.state = state.layers.back();
    if (parts_.attention && !additive()) turn.found = look(turn.state, sources, weights);
    return turn;
  }

  // state: [N, width] -> [N, source width]; N is a multiple of the sources.
  at::Tensor look(const at::Tensor& state, const Sources& sources, at::Tensor* weights) const {
    const int64_t each = state.size(0) / sources.keys.size(0);
    const at::Tensor found =
        parts_.attention->forward(state.view({sources.keys.size(0), each, state.size(1)}), sources, weights);
    if (weights != nullptr) *weights = weights->reshape({state.size(0), 1, weights->size(2)});
    return found.reshape({state.size(0), found.size(2)});
  }

  at::Tensor readout(const at::Tensor& state, const at::Tensor& word, const at::Tensor& found,
                     layer::Context& context) const {
    at::Tensor sum = parts_.of_state(state) + parts_.of_word(word);
    if (found.defined()) sum = sum + parts_.to_readout(found);
    return layer::dropout(at::tanh(sum), config_.dropout, context);
  }

  // Teacher forcing where a step waits for the one before. words: [B, T, embedding].
  at::Tensor by_steps(const at::Tensor& words, State& state, const Sources& sources,
                      layer::Context& context) const {
    const at::Tensor gates = parts_.decoder[0].gates(words);
    std::vector<at::Tensor> states, found, out;
    for (int64_t t = 0; t < words.size(1); ++t) {
      const Turn turn = advance(gates.select(1, t), state, sources, nullptr, context);
      if (config_.input_feeding) {
        state.fed = readout(turn.state, words.select(1, t), turn.found, context);
        out.push_back(state.fed);
      } else {
        states.push_back(turn.state);
        found.push_back(turn.found);
      }
    }
    if (config_.input_feeding) return at::stack(out, 1);
    return readout(at::stack(states, 1), words, at::stack(found, 1), context);
  }

  // Where only the GRUs recur: each of them over the whole text, then all the rest at once.
  at::Tensor at_once(const at::Tensor& words, const State& state, const Sources& sources,
                     layer::Context& context) const {
    at::Tensor x = words;
    for (size_t i = 0; i < parts_.decoder.size(); ++i) {
      if (i > 0) x = layer::dropout(x, config_.dropout, context);
      x = std::get<0>(at::gru(x, state.layers[i].unsqueeze(0), parts_.decoder[i].parameters(), true, 1, 0.0,
                              false, false, true));
    }
    at::Tensor found;
    if (parts_.attention) found = parts_.attention->forward(x, sources);
    return readout(x, words, found, context);
  }

  RnnTranslatorConfig config_;
  Parts parts_;
};

}  // namespace

std::unique_ptr<Translator> make_rnn_translator(const RnnTranslatorConfig& config,
                                                const WeightSource& weights) {
  return std::make_unique<RnnTranslator>(config, weights);
}

}  // namespace regard::model
