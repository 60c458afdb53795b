#include "regard/model/transformer_translator.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "regard/layer/block.h"
#include "regard/layer/checkpointed_block.h"
#include "regard/layer/dropout.h"
#include "regard/layer/kv_cache.h"
#include "regard/layer/position.h"
#include "regard/model/translator_check.h"

namespace regard::model {
namespace {

using layer::Memory;
using layer::Pass;

using Blocks = std::vector<std::shared_ptr<layer::Block>>;

struct Parts {
  layer::Weight source_tokens, target_tokens;  // [vocabulary, width]
  Blocks encoder, decoder;
  std::shared_ptr<layer::Norm> encoder_norm, decoder_norm;  // null where norms come last
  layer::Weight generator;                                  // [vocabulary, width]
  at::Tensor generator_bias;
};

class Builder {
 public:
  Builder(const TransformerTranslatorConfig& config, const WeightSource& weights)
      : config_(config), weights_(weights) {}

  Parts build() const {
    Parts parts;
    const auto table = [&](const std::string& name) {
      return weights_.table(name, config_.vocabulary, config_.width);
    };
    if (config_.tied) {
      parts.source_tokens = parts.target_tokens = table("model.shared.weight");
    } else {
      parts.source_tokens = table("model.encoder.embed_tokens.weight");
      parts.target_tokens = table("model.decoder.embed_tokens.weight");
    }
    parts.encoder = stack("model.encoder.", config_.encoder_layers, false);
    if (pre()) parts.encoder_norm = norm("model.encoder.layer_norm");
    parts.decoder = stack("model.decoder.", config_.decoder_layers, true);
    if (pre()) parts.decoder_norm = norm("model.decoder.layer_norm");
    if (config_.tied) {
      parts.generator = parts.target_tokens;
    } else {
      parts.generator = weights_.matrix("lm_head.weight", config_.vocabulary, config_.width);
      parts.generator_bias = weights_.vector("lm_head.bias", config_.vocabulary);
    }
    return parts;
  }

 private:
  bool pre() const { return config_.norm_place == layer::NormPlace::pre; }

  std::shared_ptr<layer::Norm> norm(const std::string& name) const {
    return std::make_shared<layer::Norm>(config_.norm, config_.epsilon,
                                         weights_.vector(name + ".weight", config_.width),
                                         weights_.vector(name + ".bias", config_.width));
  }

  std::shared_ptr<layer::Linear> linear(const std::string& name, int64_t rows, int64_t columns) const {
    layer::Weight weight = weights_.matrix(name + ".weight", rows, columns);
    return std::make_shared<layer::Linear>(std::move(weight), weights_.vector(name + ".bias", rows));
  }

  std::shared_ptr<layer::Attention> attention(const std::string& in, bool causal) const {
    const int64_t width = config_.width;
    layer::AttentionParts parts;
    parts.q = linear(in + ".q_proj", width, width);
    parts.k = linear(in + ".k_proj", width, width);
    parts.v = linear(in + ".v_proj", width, width);
    parts.out = linear(in + ".out_proj", width, width);
    const layer::AttentionOptions options{.heads = config_.heads,
                                          .kv_heads = config_.heads,
                                          .head_size = width / config_.heads,
                                          .causal = causal,
                                          .window = 0,
                                          .dropout = config_.attention_dropout};
    return std::make_shared<layer::Attention>(options, std::move(parts));
  }

  std::shared_ptr<layer::Block> block(const std::string& in, bool decodes) const {
    auto self = attention(in + "self_attn", decodes);
    auto self_norm = norm(in + "self_attn_layer_norm");
    layer::CrossPart cross;
    if (decodes) {
      cross.attention = attention(in + "encoder_attn", false);
      cross.norm = norm(in + "encoder_attn_layer_norm");
    }
    auto up = linear(in + "fc1", config_.feed_forward, config_.width);
    auto down = linear(in + "fc2", config_.width, config_.feed_forward);
    auto feed = std::make_shared<layer::FeedForward>(config_.activation, std::move(up), std::move(down),
                                                     nullptr, config_.dropout);
    return std::make_shared<layer::Block>(config_.norm_place, std::move(self), std::move(self_norm),
                                          std::move(feed), norm(in + "final_layer_norm"), std::move(cross),
                                          config_.dropout);
  }

  Blocks stack(const std::string& in, int64_t layers, bool decodes) const {
    Blocks blocks;
    for (int64_t i = 0; i < layers; ++i)
      blocks.push_back(block(in + "layers." + std::to_string(i) + ".", decodes));
    return blocks;
  }

  const TransformerTranslatorConfig& config_;
  const WeightSource& weights_;
};

class TransformerDecoding final : public Translator::Decoding {
 public:
  TransformerDecoding(const TransformerTranslatorConfig& config, int64_t rows, int64_t source_length,
                      int64_t capacity)
      : self(shape(config, rows, capacity)),
        cross(shape(config, rows, source_length)),
        source_length(source_length) {}

  void select(const at::Tensor& rows) override {
    const std::vector<int64_t> chosen = row_numbers(rows);
    self.select(chosen);
    cross.select(chosen);
  }

  layer::KvCache self;
  layer::KvCache cross;  // the sources' keys and values of each layer; rows of one source share their pages
  int64_t source_length;

 private:
  static layer::KvCache::Shape shape(const TransformerTranslatorConfig& config, int64_t rows,
                                     int64_t capacity) {
    layer::KvCache::Shape shape;
    shape.layers = config.decoder_layers;
    shape.batch = rows;
    shape.kv_heads = config.heads;
    shape.key_size = shape.value_size = config.width / config.heads;
    shape.capacity = capacity;
    return shape;
  }
};

class TransformerTranslator final : public Translator {
 public:
  TransformerTranslator(const TransformerTranslatorConfig& config, const WeightSource& weights)
      : config_(config), parts_(Builder(config, weights).build()) {}

  int64_t vocabulary() const override { return config_.vocabulary; }
  int64_t max_positions() const override { return config_.max_positions; }
  int64_t cross_heads() const override { return config_.decoder_layers * config_.heads; }

  std::vector<std::string> attention_names() const override {
    std::vector<std::string> names;
    const auto add = [&](const char* kind, int64_t layers) {
      for (int64_t i = 0; i < layers; ++i) names.push_back(kind + std::string(" ") + std::to_string(i));
    };
    add("encoder", config_.encoder_layers);
    add("decoder", config_.decoder_layers);
    add("cross", config_.decoder_layers);
    return names;
  }

  at::Tensor hidden(const Source& source, const at::Tensor& target, layer::Context& context) override {
    const at::AutoGradMode grad(context.training && at::GradMode::is_enabled());
    check_source(source, config_.max_positions);
    check_target(target, source, config_.max_positions);
    const Memory memory = encoded(source, context);
    const Pass pass{.context = &context,
                    .rope = nullptr,
                    .key_lengths = {},
                    .memory = &memory,
                    .first_call = config_.encoder_layers};
    return run(parts_.decoder, parts_.decoder_norm, embedded(parts_.target_tokens, target, 0, context), pass,
               config_.encoder_layers);
  }

  at::Tensor logits(const at::Tensor& hidden) override {
    return parts_.generator.linear(hidden, parts_.generator_bias);
  }

  std::unique_ptr<Translator::Decoding> begin(const Source& source, int64_t capacity,
                                              layer::Context& context) override {
    const at::NoGradGuard no_grad;
    check_source(source, config_.max_positions);
    check_capacity(capacity, config_.max_positions);
    const Memory memory = encoded(source, context);
    auto decoding =
        std::make_unique<TransformerDecoding>(config_, source.ids.size(0), source.ids.size(1), capacity);
    for (size_t i = 0; i < parts_.decoder.size(); ++i) {
      const auto [k, v] = parts_.decoder[i]->cross().attention->keys(memory.states);
      decoding->cross.append(static_cast<int64_t>(i), k, v);
    }
    if (source.lengths.defined()) decoding->cross.truncate(row_numbers(source.lengths));
    return decoding;
  }

  Step step(Translator::Decoding& begun, const at::Tensor& ids, bool want_weights) override {
    const at::NoGradGuard no_grad;
    auto* decoding = dynamic_cast<TransformerDecoding*>(&begun);
    if (decoding == nullptr) refuse_decoding();
    check_step(ids, decoding->self.batch(), decoding->self.length(), decoding->self.capacity());
    layer::Context context;
    context.cache = &decoding->self;
    context.position = decoding->self.length();
    std::vector<at::Tensor> weights;
    Memory memory;
    memory.cache = &decoding->cross;
    if (want_weights) memory.weights = &weights;
    const Pass pass{.context = &context, .rope = nullptr, .key_lengths = {}, .memory = &memory};
    const at::Tensor x =
        run(parts_.decoder, parts_.decoder_norm,
            embedded(parts_.target_tokens, ids.unsqueeze(1), context.position, context), pass);
    Step step{logits(x.select(1, 0)), {}};
    if (want_weights) {
      const at::Tensor all = at::cat(weights, 1);
      step.weights = at::constant_pad_nd(all, {0, decoding->source_length - all.size(2)}, 0);
    }
    return step;
  }

 private:
  // done: layers before these, for progress.
  at::Tensor run(const Blocks& blocks, const std::shared_ptr<layer::Norm>& norm, at::Tensor x,
                 const Pass& pass, int64_t done = 0) const {
    const layer::Context& context = *pass.context;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto layer = static_cast<int64_t>(i);
      x = context.checkpoint_layers ? layer::checkpointed(blocks[i], x, layer, pass)
                                    : blocks[i]->forward(x, layer, pass);
      if (context.progress != nullptr) {
        context.progress(context.progress_self, ++done, config_.encoder_layers + config_.decoder_layers);
      }
    }
    return norm ? norm->forward(x) : x;
  }

  Memory encoded(const Source& source, layer::Context& context) {
    if (context.cache != nullptr) refuse_cache();
    const Pass pass{.context = &context, .rope = nullptr, .key_lengths = source.lengths};
    Memory memory;
    memory.states = run(parts_.encoder, parts_.encoder_norm,
                        embedded(parts_.source_tokens, source.ids, 0, context), pass);
    memory.lengths = source.lengths;
    memory.first_call = config_.encoder_layers + config_.decoder_layers;
    return memory;
  }

  at::Tensor embedded(const layer::Weight& tokens, const at::Tensor& ids, int64_t position,
                      layer::Context& context) {
    const at::Tensor x = tokens.gather(ids).view({ids.size(0), ids.size(1), config_.width}) *
                         std::sqrt(static_cast<double>(config_.width));
    return layer::dropout(x + positions(position, ids.size(1)), config_.dropout, context);
  }

  at::Tensor positions(int64_t first, int64_t length) {
    const int64_t end = first + length;
    if (!sinusoids_.defined() || sinusoids_.size(0) < end) {
      const int64_t rows = std::clamp<int64_t>(2 * end, 64, config_.max_positions);
      sinusoids_ = layer::sinusoid(0, std::max(rows, end), config_.width);
    }
    return sinusoids_.narrow(0, first, length);
  }

  TransformerTranslatorConfig config_;
  Parts parts_;
  at::Tensor sinusoids_;  // of the first positions; grows
};

}  // namespace

std::unique_ptr<Translator> make_transformer_translator(const TransformerTranslatorConfig& config,
                                                        const WeightSource& weights) {
  return std::make_unique<TransformerTranslator>(config, weights);
}

}  // namespace regard::model
