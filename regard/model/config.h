#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regard/io/e5_file.h"
#include "regard/io/gguf.h"
#include "regard/io/json.h"
#include "regard/kernel/norm.h"
#include "regard/layer/options.h"
#include "regard/layer/rope.h"
#include "regard/model/model.h"

namespace regard::model {

// The switches by which the architectures differ; everything else is common (transformer.h).
struct TransformerConfig : Config {
  kernel::NormForm norm = kernel::NormForm::layer;
  layer::NormPlace norm_place = layer::NormPlace::pre;
  double epsilon = 1e-5;
  layer::Activation activation = layer::Activation::gelu;
  bool gated = false;   // SwiGLU
  bool rotary = false;  // else positions are learned
  double rope_base = 10000.0;
  layer::RopeScaling rope_scaling;
  bool rope_factors = false;     // GGUF: the file holds a divisor for each frequency ("rope_freqs.weight")
  std::vector<int64_t> windows;  // per layer: keys that a row sees; 0: all
  bool qkv_bias = true;
  bool out_bias = true;  // of the attention's last projection
  bool feed_forward_bias = true;
  bool qk_norm = false;
  bool tied_head = true;  // the head is the token embedding, transposed
  int64_t token_types = 0;
  double dropout = 0;   // in training: of the embedding, of what each part adds to the stream, of weights
  int64_t experts = 0;  // of each layer's mixture; 0: one feed-forward
  int64_t experts_chosen = 0;
  std::optional<layer::LatentOptions> latent;  // in place of heads with keys and values of their own
  std::optional<layer::VocabularyHeadOptions>
      vocabulary_softmax;  // in place of a head with a row for each token

  bool windowed() const;
};

// The architectures that are known, in the words of config.json's model_type.
const std::vector<std::string>& known_architectures();

// config.json. Throws io::Error naming the field, what it holds and what is allowed; an unknown architecture
// is named together with the known ones.
TransformerConfig read_config(const io::Json& json, const std::string& source);

// GGUF metadata.
TransformerConfig read_config(const io::Gguf& gguf);

// The header of an e5 file.
TransformerConfig read_config(const io::E5File& file);

}  // namespace regard::model
