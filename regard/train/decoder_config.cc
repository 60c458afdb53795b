#include "regard/train/decoder_config.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "regard/layer/adaptive_softmax.h"

namespace regard::train {
namespace {

constexpr double kEpsilon = 1e-5;  // of the norms, as in Llama 3
// A window bounds what a row sees whatever the length, so that such a model may run on.
constexpr int64_t kLongest = int64_t{1} << 20;
// What a product costs on a CPU: some fixed work, then by the multiplication (see docs/performance.md).
constexpr layer::ProductCost kCost{2e6, 1, 0};
constexpr int64_t kClusters = 4;

nlohmann::json vocabulary_head(const DecoderRecipe& model, int64_t tokens,
                               const std::vector<int64_t>& counts) {
  nlohmann::json head = {{"counts", counts}};
  if (model.head == DecoderRecipe::Head::hierarchical) {
    head["kind"] = "hierarchical";
    return head;
  }
  head["kind"] = "adaptive";
  std::vector<int64_t> falling = counts;
  std::sort(falling.begin(), falling.end(), std::greater<>());
  // Each cluster works in fewer numbers than the one before it: some must be left.
  const double division = model.head_division;
  int64_t clusters = 1;
  double numbers = static_cast<double>(model.width) / division;
  while (clusters < kClusters && (numbers /= division) >= 4) ++clusters;
  std::vector<int64_t> cutoffs =
      layer::choose_cutoffs(falling, model.width, tokens, clusters, kCost, division);
  if (cutoffs.empty()) cutoffs = {std::max<int64_t>(1, static_cast<int64_t>(counts.size()) / 2)};
  head["cutoffs"] = cutoffs;
  head["division"] = division;
  return head;
}

}  // namespace

std::string decoder_config(const DecoderRecipe& model, const TrainRecipe& train,
                           const std::vector<int64_t>& counts) {
  const bool windowed = model.window > 0;
  const bool full_head = model.head == DecoderRecipe::Head::full;
  const char* type = "llama";
  const char* published = "LlamaForCausalLM";
  if (!full_head) {
    type = "regard_decoder";
    published = "RegardDecoder";
  } else if (model.experts > 0) {
    type = "mixtral";
    published = "MixtralForCausalLM";
  } else if (model.latent_rank > 0) {
    type = "deepseek_v2";
    published = "DeepseekV2ForCausalLM";
  } else if (windowed) {
    type = "mistral";
    published = "MistralForCausalLM";
  }
  const int64_t head_size = model.width / model.heads;
  int64_t positions = model.positions;
  if (positions == 0) positions = windowed ? kLongest : train.length;
  nlohmann::json json = {{"model_type", type},
                         {"architectures", {published}},
                         {"num_hidden_layers", model.layers},
                         {"hidden_size", model.width},
                         {"num_attention_heads", model.heads},
                         {"num_key_value_heads", model.kv_heads},
                         {"intermediate_size", model.feed_forward},
                         {"vocab_size", counts.size()},
                         {"max_position_embeddings", positions},
                         {"hidden_act", "silu"},
                         {"rms_norm_eps", kEpsilon},
                         {"rope_theta", model.rope_base},
                         {"tie_word_embeddings", model.tied && full_head},
                         {"torch_dtype", "float32"}};
  if (windowed) json["sliding_window"] = model.window;
  if (model.experts > 0) {
    json["num_local_experts"] = model.experts;
    json["num_experts_per_tok"] = model.experts_chosen;
  }
  if (model.latent_rank > 0) {
    if (model.latent_query_rank > 0) json["q_lora_rank"] = model.latent_query_rank;
    json["kv_lora_rank"] = model.latent_rank;
    json["qk_nope_head_dim"] = head_size;
    json["qk_rope_head_dim"] = model.latent_rope;
    json["v_head_dim"] = head_size;
    json["first_k_dense_replace"] = model.layers;
  } else {
    json["head_dim"] = head_size;
  }
  if (model.rope_scaling.kind == layer::RopeScaling::Kind::llama3) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", model.rope_scaling.factor},
                            {"low_freq_factor", model.rope_scaling.low_frequency_factor},
                            {"high_freq_factor", model.rope_scaling.high_frequency_factor},
                            {"original_max_position_embeddings", model.rope_scaling.original_length}};
  }
  if (!full_head) json["vocabulary_head"] = vocabulary_head(model, train.batch * train.length, counts);
  return json.dump(2);
}

}  // namespace regard::train
