#include "regard/model/translator_config.h"

#include <array>
#include <string_view>
#include <utility>

#include "regard/io/error.h"

namespace regard::model {
namespace {

using io::Json;

constexpr const char* kTransformer = "transformer_translator";
constexpr const char* kRnn = "rnn_translator";

// Far above any such model, far below what would overflow or exhaust memory by itself.
constexpr int64_t kMaxLayers = 256;
constexpr int64_t kMaxHeads = 1024;
constexpr int64_t kMaxWidth = int64_t{1} << 16;
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 20;
constexpr double kMaxDropout = 0.99;

template <class T, size_t N>
using Words = std::array<std::pair<std::string_view, T>, N>;

constexpr Words<layer::Activation, 4> kActivations = {{{"relu", layer::Activation::relu},
                                                       {"gelu", layer::Activation::gelu},
                                                       {"gelu_new", layer::Activation::gelu_tanh},
                                                       {"silu", layer::Activation::silu}}};
constexpr Words<layer::NormPlace, 2> kPlaces = {
    {{"pre", layer::NormPlace::pre}, {"post", layer::NormPlace::post}}};
constexpr Words<kernel::NormForm, 2> kNorms = {
    {{"layer", kernel::NormForm::layer}, {"harvard", kernel::NormForm::harvard}}};
constexpr Words<RnnAttention, 5> kAttentions = {{{"none", RnnAttention::none},
                                                 {"additive", RnnAttention::additive},
                                                 {"dot", RnnAttention::dot},
                                                 {"general", RnnAttention::general},
                                                 {"concat", RnnAttention::concat}}};

template <class T, size_t N>
T choice(const Json& json, std::string_view field, T fallback, const Words<T, N>& words,
         const std::string& source) {
  const Json* value = io::find_field(json, field, source);
  if (value == nullptr) return fallback;
  std::string allowed;
  for (const auto& [word, meaning] : words) {
    if (value->is_string() && value->get_ref<const std::string&>() == word) return meaning;
    allowed += (allowed.empty() ? "" : ", ") + std::string(word);
  }
  io::fail(source, std::string(field) + " is " + io::describe(*value) + "; known are " + allowed);
}

template <class T, size_t N>
std::string word_of(T value, const Words<T, N>& words) {
  for (const auto& [word, meaning] : words)
    if (meaning == value) return std::string(word);
  return {};
}

void read_common(const Json& json, const std::string& source, TranslatorConfig& config) {
  config.vocabulary = io::require_int(json, "vocab_size", 2, kMaxVocabulary, source);
  config.max_positions = io::require_int(json, "max_position_embeddings", 1, kMaxPositions, source);
  config.width = io::require_int(json, "hidden_size", 1, kMaxWidth, source);
  config.tied = io::bool_or(json, "tie_word_embeddings", config.tied, source);
  config.dropout = io::number_or(json, "dropout", config.dropout, 0.0, kMaxDropout, source);
  config.bos = io::require_int(json, "bos_token_id", 0, config.vocabulary - 1, source);
  config.eos = io::require_int(json, "eos_token_id", 0, config.vocabulary - 1, source);
  config.pad = io::require_int(json, "pad_token_id", 0, config.vocabulary - 1, source);
}

Json common_json(const char* type, const TranslatorConfig& config) {
  return {{"model_type", type},
          {"vocab_size", config.vocabulary},
          {"max_position_embeddings", config.max_positions},
          {"hidden_size", config.width},
          {"tie_word_embeddings", config.tied},
          {"dropout", config.dropout},
          {"bos_token_id", config.bos},
          {"eos_token_id", config.eos},
          {"pad_token_id", config.pad},
          {"torch_dtype", "float32"}};
}

}  // namespace

bool is_translator_config(const io::Json& config, const std::string& source) {
  const Json* type = io::find_field(config, "model_type", source);
  return type != nullptr && (*type == kTransformer || *type == kRnn);
}

TransformerTranslatorConfig read_transformer_translator(const Json& json, const std::string& source) {
  TransformerTranslatorConfig config;
  read_common(json, source, config);
  config.encoder_layers = io::require_int(json, "num_encoder_layers", 1, kMaxLayers, source);
  config.decoder_layers = io::require_int(json, "num_decoder_layers", 1, kMaxLayers, source);
  config.heads = io::require_int(json, "num_attention_heads", 1, kMaxHeads, source);
  if (config.width % config.heads != 0 || config.width % 2 != 0) {
    io::fail(source, "hidden_size is " + std::to_string(config.width) +
                         "; it must be even (sinusoids) and a multiple of num_attention_heads, " +
                         std::to_string(config.heads));
  }
  config.feed_forward = io::require_int(json, "intermediate_size", 1, 4 * kMaxWidth, source);
  config.activation = choice(json, "hidden_act", config.activation, kActivations, source);
  config.norm_place = choice(json, "norm_place", config.norm_place, kPlaces, source);
  config.norm = choice(json, "norm", config.norm, kNorms, source);
  config.epsilon = io::number_or(json, "norm_eps", config.epsilon, 1e-30, 0.1, source);
  config.attention_dropout =
      io::number_or(json, "attention_dropout", config.attention_dropout, 0.0, kMaxDropout, source);
  return config;
}

RnnTranslatorConfig read_rnn_translator(const Json& json, const std::string& source) {
  RnnTranslatorConfig config;
  read_common(json, source, config);
  config.embedding = io::require_int(json, "embedding_size", 1, kMaxWidth, source);
  config.encoder_width = io::require_int(json, "encoder_hidden_size", 1, kMaxWidth, source);
  config.encoder_layers = io::require_int(json, "num_encoder_layers", 1, kMaxLayers, source);
  config.decoder_layers = io::require_int(json, "num_decoder_layers", 1, kMaxLayers, source);
  config.readout = io::require_int(json, "readout_size", 1, kMaxWidth, source);
  config.attention = choice(json, "attention", config.attention, kAttentions, source);
  config.attention_size = io::int_or(json, "attention_size", config.width, 1, kMaxWidth, source);
  config.input_feeding = io::bool_or(json, "input_feeding", config.input_feeding, source);
  if (config.attention == RnnAttention::dot && config.width != 2 * config.encoder_width) {
    io::fail(source, "attention is \"dot\" and hidden_size is " + std::to_string(config.width) +
                         "; it must be twice encoder_hidden_size, " + std::to_string(config.encoder_width));
  }
  if (config.input_feeding &&
      (config.attention == RnnAttention::none || config.attention == RnnAttention::additive)) {
    io::fail(source, "input_feeding is true; it is known with the attentions dot, general and concat");
  }
  if (config.tied && config.readout != config.embedding) {
    io::fail(source, "tie_word_embeddings is true and readout_size is " + std::to_string(config.readout) +
                         "; it must be embedding_size, " + std::to_string(config.embedding));
  }
  return config;
}

Json to_json(const TransformerTranslatorConfig& config) {
  Json json = common_json(kTransformer, config);
  json.update({{"architectures", {"TransformerTranslator"}},
               {"num_encoder_layers", config.encoder_layers},
               {"num_decoder_layers", config.decoder_layers},
               {"num_attention_heads", config.heads},
               {"intermediate_size", config.feed_forward},
               {"hidden_act", word_of(config.activation, kActivations)},
               {"norm_place", word_of(config.norm_place, kPlaces)},
               {"norm", word_of(config.norm, kNorms)},
               {"norm_eps", config.epsilon},
               {"attention_dropout", config.attention_dropout}});
  return json;
}

Json to_json(const RnnTranslatorConfig& config) {
  Json json = common_json(kRnn, config);
  json.update({{"architectures", {"RnnTranslator"}},
               {"embedding_size", config.embedding},
               {"encoder_hidden_size", config.encoder_width},
               {"num_encoder_layers", config.encoder_layers},
               {"num_decoder_layers", config.decoder_layers},
               {"readout_size", config.readout},
               {"attention", word_of(config.attention, kAttentions)},
               {"attention_size", config.attention_size},
               {"input_feeding", config.input_feeding}});
  return json;
}

}  // namespace regard::model
