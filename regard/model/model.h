#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "regard/layer/context.h"
#include "regard/layer/kv_cache.h"
#include "regard/model/precision.h"
#include "regard/text/tokenizer.h"

namespace regard::model {

// What every architecture has in common, read from config.json, GGUF metadata or the e5 header.
struct Config {
  std::string architecture;  // "bert", "gpt2", "llama", "mistral", "qwen2", "qwen3"
  int64_t layers = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t feed_forward = 0;
  int64_t vocabulary = 0;
  int64_t max_positions = 0;  // the longest text that the model takes
  bool causal = false;
};

// Token ids of a batch, right-padded to one length.
struct Input {
  at::Tensor ids;       // [B, L] int64
  at::Tensor type_ids;  // [B, L] int64, BERT's second text is 1; undefined: all 0
  at::Tensor lengths;   // [B] int64; undefined: no padding
  // Packed documents (decoders, without a cache): [B, L] int32 the document of each token, whose rows see
  // their own document alone, and [B, L] int64 each token's position in it. Undefined: one text a row.
  at::Tensor segments{};
  at::Tensor positions{};
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const Config& config() const = 0;

  // Hidden states after the last layer (and final norm, if the model has one): [B, L, width] float32.
  virtual at::Tensor hidden(const Input& input, layer::Context& context) = 0;

  // Logits of the language-model head for the given hidden states: [..., vocabulary]. Throws
  // std::invalid_argument when the model has none (see has_head()).
  virtual at::Tensor logits(const at::Tensor& hidden) = 0;
  virtual bool has_head() const = 0;

  // A cache for one sequence batch; nullptr for encoders.
  virtual std::unique_ptr<layer::KvCache> make_cache(
      int64_t batch, int64_t capacity, kernel::CacheType type = kernel::CacheType::f32) const = 0;
};

enum class Pooling : uint8_t { mean, cls };

// A model with what is needed to use it on text.
struct Loaded {
  std::string name;  // as the user gave it
  std::unique_ptr<Model> model;
  std::unique_ptr<text::Tokenizer> tokenizer;
  Pooling pooling = Pooling::mean;
  bool normalize = true;
  int64_t embed_length = 0;  // tokens that `embed` takes (MiniLM: 256); 0: max_positions
  std::string embed_prefix;  // put before each text by `embed` unless told otherwise (e5: "query: ")
  int64_t file_bytes = 0;    // of the weights
  Precision precision = Precision::f32;
};

// name_or_path: a name of `regard models`, a folder, a GGUF or e5 file, or ORG/NAME in the local Hugging Face
// cache. Never touches the network. Throws io::Error or std::invalid_argument with one sentence.
Loaded load(const std::string& name_or_path, const LoadOptions& options = {});

}  // namespace regard::model
