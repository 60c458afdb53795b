#pragma once

#include <memory>

#include "regard/model/transformer.h"
#include "regard/model/weight_source.h"

namespace regard::model {

// Whose names and layouts a file follows.
enum class Naming : uint8_t {
  hugging_face,  // GPT-2's matrices are stored transposed, its q, k and v fused
  gguf           // Llama's q and k rows are permuted: undone here, see io::unpermuted_rows
};

// GPT-2, Llama, Mistral, Qwen2 or Qwen3 from published weight names, with or without the prefix "model." or
// "transformer.". Throws io::Error for a tensor that is missing or has another shape.
std::unique_ptr<Transformer> make_decoder(const TransformerConfig& config, const WeightSource& weights,
                                          Naming naming);

}  // namespace regard::model
