#include "regard/model/config.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "regard/io/error.h"
#include "regard/model/config_check.h"
#include "regard/model/translator_config.h"

namespace regard::model {
namespace {

using io::Json;

layer::Activation activation_of(const Json& json, std::string_view field, std::string_view fallback,
                                const std::string& source) {
  static const std::pair<std::string_view, layer::Activation> known[] = {
      {"gelu", layer::Activation::gelu},
      {"gelu_new", layer::Activation::gelu_tanh},
      {"gelu_pytorch_tanh", layer::Activation::gelu_tanh},
      {"silu", layer::Activation::silu},
      {"swish", layer::Activation::silu},
      {"relu", layer::Activation::relu}};
  const std::string name = io::string_or(json, field, fallback, source);
  std::string allowed;
  for (const auto& [word, activation] : known) {
    if (word == name) return activation;
    allowed += (allowed.empty() ? "" : ", ") + std::string(word);
  }
  io::fail(source, std::string(field) + " is " + io::quoted(name) + "; known are " + allowed);
}

// "rope_parameters" (new) or "rope_theta" and "rope_scaling" (old).
void read_rope(const Json& json, const std::string& source, TransformerConfig& config) {
  config.rotary = true;
  const Json* parameters = io::find_field(json, "rope_parameters", source);
  const Json* scaling = parameters != nullptr ? parameters : io::find_field(json, "rope_scaling", source);
  const Json& base_holder =
      parameters != nullptr && io::find_field(*parameters, "rope_theta", source) != nullptr ? *parameters
                                                                                            : json;
  config.rope_base = io::number_or(base_holder, "rope_theta", 10000.0, 1.0, kMaxBase, source);
  if (scaling == nullptr) return;
  const std::string kind =
      io::string_or(*scaling, "rope_type", io::string_or(*scaling, "type", "default", source), source);
  layer::RopeScaling& out = config.rope_scaling;
  if (kind == "default") return;
  if (kind != "linear" && kind != "llama3") {
    io::fail(source, "rope_type is " + io::quoted(kind) + "; known are default, linear, llama3");
  }
  out.factor = io::require_number(*scaling, "factor", 1.0, 1e6, source);
  out.kind = layer::RopeScaling::Kind::linear;
  if (kind == "linear") return;
  out.kind = layer::RopeScaling::Kind::llama3;
  out.low_frequency_factor = io::require_number(*scaling, "low_freq_factor", 1e-3, 1e6, source);
  out.high_frequency_factor = io::require_number(*scaling, "high_freq_factor", 1e-3, 1e6, source);
  out.original_length =
      io::require_int(*scaling, "original_max_position_embeddings", 1, kMaxPositions, source);
  if (!(out.high_frequency_factor > out.low_frequency_factor)) {
    io::fail(source, "high_freq_factor is " + std::to_string(out.high_frequency_factor) +
                         "; it must be above low_freq_factor, " + std::to_string(out.low_frequency_factor));
  }
}

// Which layers have a window, and how wide it is.
void read_windows(const Json& json, const std::string& source, TransformerConfig& config) {
  const int64_t window = io::int_or(json, "sliding_window", 0, 1, kMaxPositions, source);
  const bool everywhere = config.architecture == "mistral" || config.architecture == "mixtral" ||
                          config.architecture == "regard_decoder";
  const bool used = io::bool_or(json, "use_sliding_window", everywhere, source);
  config.windows.assign(static_cast<size_t>(config.layers), 0);
  if (window == 0 || !used) return;
  if (const Json* types = io::find_field(json, "layer_types", source)) {
    if (!types->is_array() || types->size() != config.windows.size()) {
      io::fail(source, "layer_types is " + io::describe(*types) +
                           "; it must be a list of num_hidden_layers, " + std::to_string(config.layers) +
                           ", names");
    }
    for (size_t i = 0; i < config.windows.size(); ++i) {
      const Json& type = (*types)[i];
      if (type == "sliding_attention") {
        config.windows[i] = window;
      } else if (type != "full_attention") {
        io::fail(source, "layer_types[" + std::to_string(i) + "] is " + io::describe(type) +
                             "; known are full_attention, sliding_attention");
      }
    }
    return;
  }
  // Qwen2: the first max_window_layers layers see everything.
  const int64_t full =
      everywhere ? 0 : io::int_or(json, "max_window_layers", config.layers, 0, kMaxLayers, source);
  for (int64_t i = full; i < config.layers; ++i) config.windows[static_cast<size_t>(i)] = window;
}

// Mixtral: every layer a mixture whose chosen experts' weights sum to 1.
void read_experts(const Json& json, const std::string& source, TransformerConfig& config) {
  config.experts = io::require_int(json, "num_local_experts", 1, kMaxExperts, source);
  config.experts_chosen = io::int_or(json, "num_experts_per_tok", 2, 1, config.experts, source);
}

// DeepSeek-V2's attention; its mixtures with shared experts are not known.
void read_latent(const Json& json, const std::string& source, TransformerConfig& config) {
  layer::LatentOptions latent;
  latent.width = config.width;
  latent.heads = config.heads;
  latent.query_rank = io::int_or(json, "q_lora_rank", 0, 1, kMaxWidth, source);
  latent.rank = io::require_int(json, "kv_lora_rank", 1, kMaxWidth, source);
  latent.nope = io::require_int(json, "qk_nope_head_dim", 1, kMaxWidth, source);
  latent.rope = io::require_int(json, "qk_rope_head_dim", 2, kMaxWidth, source);
  latent.value = io::require_int(json, "v_head_dim", 1, kMaxWidth, source);
  if (latent.rope % 2 != 0) {
    io::fail(source, "qk_rope_head_dim is " + std::to_string(latent.rope) + "; it must be even");
  }
  if (const int64_t dense = io::int_or(json, "first_k_dense_replace", 0, 0, kMaxLayers, source);
      io::int_or(json, "n_routed_experts", 0, 1, kMaxExperts, source) > 0 && dense < config.layers) {
    io::fail(source, "first_k_dense_replace is " + std::to_string(dense) +
                         "; mixtures of experts are not known here, so it must be num_hidden_layers, " +
                         std::to_string(config.layers));
  }
  config.latent = latent;
  config.kv_heads = config.heads;
  config.head_size = latent.nope + latent.rope;
}

// Our own: how often each token was seen, and by which softmax the head works.
void read_vocabulary(const Json& json, const std::string& source, TransformerConfig& config) {
  const Json* head = io::find_field(json, "vocabulary_head", source);
  if (head == nullptr) return;
  layer::VocabularyHeadOptions options;
  options.width = config.width;
  const std::string kind = io::require_string(*head, "kind", source);
  if (kind != "adaptive" && kind != "hierarchical")
    io::fail(source, "vocabulary_head.kind is " + io::quoted(kind) + "; known are adaptive, hierarchical");
  const bool adaptive = kind == "adaptive";
  options.kind = adaptive ? layer::VocabularyHeadOptions::Kind::adaptive
                          : layer::VocabularyHeadOptions::Kind::hierarchical;
  const auto numbers = [&](const char* field, int64_t lowest, std::vector<int64_t>& out) {
    const Json* list = io::find_field(*head, field, source);
    if (list == nullptr || !list->is_array())
      io::fail(source, std::string("vocabulary_head.") + field + " is missing; it must be a list of numbers");
    for (const Json& number : *list) {
      if (!number.is_number_integer() || number.get<int64_t>() < lowest)
        io::fail(source, std::string("vocabulary_head.") + field + " holds " + io::describe(number) +
                             "; it must hold whole numbers from " + std::to_string(lowest));
      out.push_back(number.get<int64_t>());
    }
  };
  numbers("counts", 0, options.counts);
  if (static_cast<int64_t>(options.counts.size()) != config.vocabulary) {
    io::fail(source, "vocabulary_head.counts has " + std::to_string(options.counts.size()) +
                         " numbers; the vocabulary has " + std::to_string(config.vocabulary));
  }
  if (adaptive) {
    numbers("cutoffs", 1, options.cutoffs);
    if (io::find_field(*head, "division", source) != nullptr)
      options.division = io::require_number(*head, "division", 1, 64, source);
  }
  config.vocabulary_softmax = options;
}

TransformerConfig bert_config(const Json& json, const std::string& source) {
  TransformerConfig config;
  config.layers = io::require_int(json, "num_hidden_layers", 1, kMaxLayers, source);
  config.width = io::require_int(json, "hidden_size", 1, kMaxWidth, source);
  config.heads = config.kv_heads = io::require_int(json, "num_attention_heads", 1, kMaxHeads, source);
  config.head_size = head_size_of(source, config.width, config.heads, "num_attention_heads");
  config.feed_forward = io::require_int(json, "intermediate_size", 1, kMaxWidth, source);
  config.vocabulary = io::require_int(json, "vocab_size", 1, kMaxVocabulary, source);
  config.max_positions = io::require_int(json, "max_position_embeddings", 1, kMaxPositions, source);
  config.token_types = io::int_or(json, "type_vocab_size", 2, 1, 1024, source);
  config.epsilon = io::number_or(json, "layer_norm_eps", 1e-12, 1e-30, kMaxEpsilon, source);
  config.activation = activation_of(json, "hidden_act", "gelu", source);
  config.norm_place = layer::NormPlace::post;
  config.tied_head = io::bool_or(json, "tie_word_embeddings", true, source);
  const std::string positions = io::string_or(json, "position_embedding_type", "absolute", source);
  if (positions != "absolute") {
    io::fail(source, "position_embedding_type is " + io::quoted(positions) + "; only absolute is known");
  }
  if (io::bool_or(json, "is_decoder", false, source)) {
    io::fail(source, "is_decoder is true; only BERT encoders are known");
  }
  return config;
}

TransformerConfig gpt2_config(const Json& json, const std::string& source) {
  TransformerConfig config;
  config.causal = true;
  config.layers = io::require_int(json, "n_layer", 1, kMaxLayers, source);
  config.width = io::require_int(json, "n_embd", 1, kMaxWidth, source);
  config.heads = config.kv_heads = io::require_int(json, "n_head", 1, kMaxHeads, source);
  config.head_size = head_size_of(source, config.width, config.heads, "n_head");
  config.feed_forward = io::int_or(json, "n_inner", 4 * config.width, 1, 4 * kMaxWidth, source);
  config.vocabulary = io::require_int(json, "vocab_size", 1, kMaxVocabulary, source);
  config.max_positions = io::require_int(json, "n_positions", 1, kMaxPositions, source);
  config.epsilon = io::number_or(json, "layer_norm_epsilon", 1e-5, 1e-30, kMaxEpsilon, source);
  config.activation = activation_of(json, "activation_function", "gelu_new", source);
  config.tied_head = io::bool_or(json, "tie_word_embeddings", true, source);
  if (!io::bool_or(json, "scale_attn_weights", true, source)) {
    io::fail(source, "scale_attn_weights is false; only true is known");
  }
  if (io::bool_or(json, "scale_attn_by_inverse_layer_idx", false, source)) {
    io::fail(source, "scale_attn_by_inverse_layer_idx is true; only false is known");
  }
  return config;
}

TransformerConfig llama_like_config(const Json& json, const std::string& source,
                                    const std::string& architecture) {
  TransformerConfig config;
  config.architecture = architecture;
  config.causal = true;
  config.norm = kernel::NormForm::rms;
  config.gated = true;
  config.layers = io::require_int(json, "num_hidden_layers", 1, kMaxLayers, source);
  config.width = io::require_int(json, "hidden_size", 1, kMaxWidth, source);
  config.heads = io::require_int(json, "num_attention_heads", 1, kMaxHeads, source);
  config.kv_heads = io::int_or(json, "num_key_value_heads", config.heads, 1, config.heads, source);
  config.head_size = io::find_field(json, "head_dim", source) != nullptr
                         ? io::require_int(json, "head_dim", 1, kMaxWidth, source)
                         : head_size_of(source, config.width, config.heads, "num_attention_heads");
  config.feed_forward = io::require_int(json, "intermediate_size", 1, 4 * kMaxWidth, source);
  config.vocabulary = io::require_int(json, "vocab_size", 1, kMaxVocabulary, source);
  config.max_positions = io::require_int(json, "max_position_embeddings", 1, kMaxPositions, source);
  config.epsilon = io::number_or(json, "rms_norm_eps", 1e-6, 1e-30, kMaxEpsilon, source);
  config.activation = activation_of(json, "hidden_act", "silu", source);
  config.tied_head = io::bool_or(json, "tie_word_embeddings", false, source);
  const bool bias = io::bool_or(json, "attention_bias", false, source);
  config.qkv_bias = architecture == "qwen2" || bias;
  config.out_bias = architecture != "qwen2" && bias;
  const bool ours_or_llama = architecture == "llama" || architecture == "regard_decoder";
  config.feed_forward_bias = ours_or_llama && io::bool_or(json, "mlp_bias", false, source);
  config.qk_norm = architecture == "qwen3";
  read_rope(json, source, config);
  read_windows(json, source, config);
  const bool ours = architecture == "regard_decoder";
  const auto given = [&](const char* field) {
    return ours && io::find_field(json, field, source) != nullptr;
  };
  if (architecture == "mixtral" || given("num_local_experts")) read_experts(json, source, config);
  if (architecture == "deepseek_v2" || given("kv_lora_rank")) read_latent(json, source, config);
  if (ours) read_vocabulary(json, source, config);
  return config;
}

}  // namespace

bool TransformerConfig::windowed() const {
  return std::any_of(windows.begin(), windows.end(), [](int64_t window) { return window > 0; });
}

const std::vector<std::string>& known_architectures() {
  static const std::vector<std::string> names = {"bert",  "gpt2",    "llama",       "mistral",       "qwen2",
                                                 "qwen3", "mixtral", "deepseek_v2", "regard_decoder"};
  return names;
}

TransformerConfig read_config(const Json& json, const std::string& source) {
  const std::string& architecture = io::require_string(json, "model_type", source);
  const auto& known = known_architectures();
  if (std::find(known.begin(), known.end(), architecture) == known.end()) {
    if (is_translator_config(json, source))
      io::fail(source, "this is a " + architecture + ", which 'regard translate' and 'regard look' take");
    refuse_architecture(source, "model_type", architecture);
  }
  TransformerConfig config = architecture == "bert"   ? bert_config(json, source)
                             : architecture == "gpt2" ? gpt2_config(json, source)
                                                      : llama_like_config(json, source, architecture);
  config.architecture = architecture;
  check_heads(config, source, "num_attention_heads", "num_key_value_heads");
  return config;
}

TransformerConfig read_config(const io::E5File& file) {
  const io::E5Config& header = file.config();
  const std::string& source = file.source();
  TransformerConfig config;
  config.architecture = "bert";
  config.layers = header.layers;
  config.width = header.width;
  config.heads = config.kv_heads = header.heads;
  config.head_size = head_size_of(source, config.width, config.heads, "heads");
  config.feed_forward = header.feed_forward;
  config.vocabulary = header.vocabulary;
  config.max_positions = header.positions;
  config.token_types = header.token_types;
  config.epsilon = header.epsilon;
  config.norm_place = layer::NormPlace::post;
  return config;
}

}  // namespace regard::model
