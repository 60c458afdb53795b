#pragma once

#include <memory>
#include <vector>

#include "regard/layer/block.h"
#include "regard/layer/rope.h"
#include "regard/layer/vocabulary_head.h"
#include "regard/model/config.h"
#include "regard/model/model.h"

namespace regard::model {

// What a transformer is made of; bert.h and decoder.h fill it from published weights. Parts that an
// architecture does not have stay empty.
struct TransformerParts {
  TransformerConfig config;

  layer::Weight tokens;     // [vocabulary, width]
  layer::Weight positions;  // [max_positions, width]: learned positions
  layer::Weight types;      // [token_types, width]: BERT's first and second text
  std::shared_ptr<layer::Norm> embedding_norm;
  std::shared_ptr<const layer::Rope> rope;

  std::vector<std::shared_ptr<layer::Block>> blocks;
  std::shared_ptr<layer::Norm> final_norm;

  // logits = head(norm(activation(transform(hidden)))) for BERT, head(hidden) for the others.
  std::shared_ptr<layer::Linear> head_transform;
  std::shared_ptr<layer::Norm> head_norm;
  layer::Weight head;  // [vocabulary, width]
  at::Tensor head_bias;
  std::shared_ptr<layer::VocabularyHead> vocabulary_head;  // in place of head: logits are ln p

  std::shared_ptr<layer::Linear> pooler;
};

// One stack of blocks for all architectures: BERT, GPT-2, Llama, Mistral, Qwen2, Qwen3.
class Transformer final : public Model {
 public:
  explicit Transformer(TransformerParts parts);

  const Config& config() const override { return parts_.config; }
  const TransformerConfig& switches() const { return parts_.config; }

  // Throws std::invalid_argument for an input that is malformed or longer than max_positions (both numbers
  // are named), a padded batch with a cache, and a position that is not the cache's length.
  at::Tensor hidden(const Input& input, layer::Context& context) override;

  // Also the states between: after the embedding and after each block, [B, L, width] each, layers + 1 of
  // them; the last one is after the final norm.
  std::vector<at::Tensor> states(const Input& input, layer::Context& context);

  at::Tensor logits(const at::Tensor& hidden) override;
  bool has_head() const override { return parts_.vocabulary_head || parts_.head; }
  // Null where the head has a row for each token.
  const layer::VocabularyHead* vocabulary_head() const { return parts_.vocabulary_head.get(); }

  // BERT's summary of the first token, tanh(W h + b): [B, width]. Throws std::invalid_argument without a
  // pooler.
  at::Tensor pooled(const at::Tensor& hidden) const;
  bool has_pooler() const { return parts_.pooler != nullptr; }

  std::unique_ptr<layer::KvCache> make_cache(int64_t batch, int64_t capacity,
                                             kernel::CacheType type) const override;

 private:
  void check(const Input& input, const layer::Context& context) const;
  at::Tensor embedded(const Input& input, int64_t position) const;
  at::Tensor run(const Input& input, layer::Context& context, std::vector<at::Tensor>* states);

  TransformerParts parts_;
};

}  // namespace regard::model
