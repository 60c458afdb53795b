#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "regard/io/error.h"
#include "regard/model/config.h"
#include "regard/model/config_check.h"

namespace regard::model {

TransformerConfig read_config(const io::Gguf& gguf) {
  const std::string& source = gguf.source();
  const std::string architecture(gguf.require_string("general.architecture"));
  static constexpr std::string_view kInGguf[] = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};
  if (std::find(std::begin(kInGguf), std::end(kInGguf), architecture) == std::end(kInGguf)) {
    refuse_architecture(source, "general.architecture", architecture);
  }
  const auto key = [&](std::string_view name) { return architecture + "." + std::string(name); };
  const auto number = [&](std::string_view name, double fallback, double lowest, double highest) {
    const double value = gguf.float_or(key(name), fallback);
    if (!(value >= lowest && value <= highest)) {
      io::fail(source, key(name) + " is " + std::to_string(value) + "; it must be from " +
                           std::to_string(lowest) + " to " + std::to_string(highest));
    }
    return value;
  };

  TransformerConfig config;
  config.architecture = architecture;
  config.causal = true;
  config.layers = gguf.require_int(key("block_count"), 1, kMaxLayers);
  config.width = gguf.require_int(key("embedding_length"), 1, kMaxWidth);
  config.heads = gguf.require_int(key("attention.head_count"), 1, kMaxHeads);
  config.kv_heads = gguf.int_or(key("attention.head_count_kv"), config.heads, 1, config.heads);
  config.head_size = gguf.has(key("attention.key_length"))
                         ? gguf.require_int(key("attention.key_length"), 1, kMaxWidth)
                         : head_size_of(source, config.width, config.heads, key("attention.head_count"));
  if (const int64_t value_size = gguf.int_or(key("attention.value_length"), config.head_size, 1, kMaxWidth);
      value_size != config.head_size) {
    io::fail(source, key("attention.value_length") + " is " + std::to_string(value_size) +
                         "; only the key length, " + std::to_string(config.head_size) + ", is known");
  }
  config.feed_forward = gguf.require_int(key("feed_forward_length"), 1, 4 * kMaxWidth);
  config.max_positions = gguf.require_int(key("context_length"), 1, kMaxPositions);
  const io::Tensor& tokens = gguf.require("token_embd.weight");
  config.vocabulary = tokens.rows();
  config.tied_head = gguf.find("output.weight") == nullptr;
  config.windows.assign(static_cast<size_t>(config.layers), 0);

  if (architecture == "gpt2") {
    config.epsilon = number("attention.layer_norm_epsilon", 1e-5, 1e-30, kMaxEpsilon);
    config.activation = layer::Activation::gelu_tanh;
    check_heads(config, source, key("attention.head_count"), key("attention.head_count_kv"));
    return config;
  }
  config.norm = kernel::NormForm::rms;
  config.gated = true;
  config.activation = layer::Activation::silu;
  config.rotary = true;
  config.epsilon = number("attention.layer_norm_rms_epsilon", 1e-6, 1e-30, kMaxEpsilon);
  config.rope_base = number("rope.freq_base", 10000.0, 1.0, kMaxBase);
  // GGUF says so by the tensors that it holds.
  config.qkv_bias = gguf.find("blk.0.attn_q.bias") != nullptr;
  config.out_bias = gguf.find("blk.0.attn_output.bias") != nullptr;
  config.feed_forward_bias = gguf.find("blk.0.ffn_down.bias") != nullptr;
  config.qk_norm = architecture == "qwen3";
  if (gguf.int_or(key("expert_count"), 0, 0, kMaxWidth) > 0) {
    io::fail(source, key("expert_count") + " is not 0; mixtures of experts are not known");
  }
  if (const int64_t turned = gguf.int_or(key("rope.dimension_count"), config.head_size, 1, kMaxWidth);
      turned != config.head_size) {
    io::fail(source, key("rope.dimension_count") + " is " + std::to_string(turned) +
                         "; only the head size, " + std::to_string(config.head_size) + ", is known");
  }
  const std::string scaling(gguf.string_or(key("rope.scaling.type"), "none"));
  if (scaling == "linear") {
    config.rope_scaling.kind = layer::RopeScaling::Kind::linear;
    config.rope_scaling.factor = number("rope.scaling.factor", 1.0, 1.0, 1e6);
  } else if (scaling != "none") {
    io::fail(source, key("rope.scaling.type") + " is " + io::quoted(scaling) + "; known are none, linear");
  }
  if (gguf.find("rope_freqs.weight") != nullptr) config.rope_factors = true;
  if (const int64_t window = gguf.int_or(key("attention.sliding_window"), 0, 0, kMaxPositions); window > 0) {
    if (architecture != "llama") {
      io::fail(source, key("attention.sliding_window") + " is " + std::to_string(window) +
                           "; only 0 is known for " + architecture);
    }
    config.windows.assign(config.windows.size(), window);
  }
  check_heads(config, source, key("attention.head_count"), key("attention.head_count_kv"));
  return config;
}

}  // namespace regard::model
