#pragma once

#include <cstdint>
#include <string>

#include "regard/io/json.h"

namespace regard::model {

// What config.json says of a "vit" (Hugging Face's ViTForImageClassification), with its fields.
struct VitConfig {
  int64_t image_height = 0, image_width = 0;  // image_size: one number where they are the same
  int64_t patch = 0;                          // patch_size
  int64_t channels = 1;                       // num_channels
  int64_t classes = 0;                        // of id2label
  int64_t layers = 0;                         // num_hidden_layers
  int64_t width = 0;                          // hidden_size
  int64_t heads = 0;                          // num_attention_heads
  int64_t feed_forward = 0;                   // intermediate_size, of GELU
  double epsilon = 1e-12;                     // layer_norm_eps
  double dropout = 0;                         // hidden_dropout_prob
  double attention_dropout = 0;               // attention_probs_dropout_prob
  bool positions = true;                      // ours, use_position_embeddings: false: none

  int64_t patches() const { return image_height / patch * (image_width / patch); }
};

// Whether config.json's model_type is "vit".
bool is_vit_config(const io::Json& config, const std::string& source);
// Throws io::Error naming the field, what it holds and what is allowed.
VitConfig read_vit(const io::Json& json, const std::string& source);
// What it reads.
io::Json to_json(const VitConfig& config);

}  // namespace regard::model
