#include "regard/model/vit_config.h"

#include "regard/io/error.h"
#include "regard/model/config_check.h"

namespace regard::model {
namespace {

using io::Json;

constexpr int64_t kMaxPixels = 1 << 16;
constexpr double kMaxDropout = 0.99;

}  // namespace

bool is_vit_config(const Json& config, const std::string& source) {
  const Json* type = io::find_field(config, "model_type", source);
  return type != nullptr && *type == "vit";
}

VitConfig read_vit(const Json& json, const std::string& source) {
  if (!is_vit_config(json, source)) io::fail(source, "model_type is not \"vit\"");
  VitConfig config;
  const Json* size = io::find_field(json, "image_size", source);
  if (size != nullptr && size->is_array() && size->size() == 2) {
    const Json sides = {{"height", (*size)[0]}, {"width", (*size)[1]}};
    config.image_height = io::require_int(sides, "height", 1, kMaxPixels, source);
    config.image_width = io::require_int(sides, "width", 1, kMaxPixels, source);
  } else {
    config.image_height = config.image_width = io::require_int(json, "image_size", 1, kMaxPixels, source);
  }
  config.patch = io::require_int(json, "patch_size", 1, kMaxPixels, source);
  config.channels = io::require_int(json, "num_channels", 1, 1024, source);
  config.layers = io::require_int(json, "num_hidden_layers", 1, kMaxLayers, source);
  config.width = io::require_int(json, "hidden_size", 1, kMaxWidth, source);
  config.heads = io::require_int(json, "num_attention_heads", 1, kMaxHeads, source);
  config.feed_forward = io::require_int(json, "intermediate_size", 1, 4 * kMaxWidth, source);
  config.epsilon = io::number_or(json, "layer_norm_eps", config.epsilon, 0.0, kMaxEpsilon, source);
  config.dropout = io::number_or(json, "hidden_dropout_prob", 0.0, 0.0, kMaxDropout, source);
  config.attention_dropout =
      io::number_or(json, "attention_probs_dropout_prob", 0.0, 0.0, kMaxDropout, source);
  config.positions = io::bool_or(json, "use_position_embeddings", true, source);
  config.classes = static_cast<int64_t>(io::require_object(json, "id2label", source).size());
  if (config.classes < 2) io::fail(source, "id2label names fewer than 2 classes");
  if (const std::string act = io::string_or(json, "hidden_act", "gelu", source); act != "gelu")
    io::fail(source, "hidden_act is " + io::quoted(act) + "; known is gelu");
  if (!io::bool_or(json, "qkv_bias", true, source)) io::fail(source, "qkv_bias is false; known is true");
  head_size_of(source, config.width, config.heads, "num_attention_heads");
  if (config.image_height % config.patch != 0 || config.image_width % config.patch != 0) {
    io::fail(source, "image_size is " + std::to_string(config.image_height) + " x " +
                         std::to_string(config.image_width) + "; both must be multiples of patch_size, " +
                         std::to_string(config.patch));
  }
  return config;
}

Json to_json(const VitConfig& config) {
  Json names = Json::object(), numbers = Json::object();
  for (int64_t i = 0; i < config.classes; ++i) {
    names[std::to_string(i)] = "LABEL_" + std::to_string(i);
    numbers["LABEL_" + std::to_string(i)] = i;
  }
  const bool square = config.image_height == config.image_width;
  return {{"model_type", "vit"},
          {"architectures", {"ViTForImageClassification"}},
          {"image_size", square ? Json(config.image_height) : Json{config.image_height, config.image_width}},
          {"patch_size", config.patch},
          {"num_channels", config.channels},
          {"num_hidden_layers", config.layers},
          {"hidden_size", config.width},
          {"num_attention_heads", config.heads},
          {"intermediate_size", config.feed_forward},
          {"hidden_act", "gelu"},
          {"layer_norm_eps", config.epsilon},
          {"hidden_dropout_prob", config.dropout},
          {"attention_probs_dropout_prob", config.attention_dropout},
          {"use_position_embeddings", config.positions},
          {"qkv_bias", true},
          {"id2label", names},
          {"label2id", numbers},
          {"torch_dtype", "float32"}};
}

}  // namespace regard::model
