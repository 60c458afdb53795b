#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "regard/layer/basic.h"
#include "regard/layer/context.h"
#include "regard/layer/rope.h"

namespace regard::layer {

struct AttentionOptions {
  int64_t heads = 1;
  int64_t kv_heads = 1;  // query head h reads KV head h / (heads / kv_heads)
  int64_t head_size = 1;
  bool causal = false;
  int64_t window = 0;  // how many keys a row sees, itself the last of them (causal); 0: no bound
  double dropout = 0;  // of the weights, in training
};

// q_norm and k_norm (may be null) work on each head before the rotation. qkv: in place of q, k and v, their
// rows one above the other, one product for all.
struct AttentionParts {
  std::shared_ptr<Linear> q, k, v, out, qkv;
  std::shared_ptr<Norm> q_norm, k_norm;
};

// The text that a decoder's layers look at beside their own: what an encoder made of it, or for decoding one
// position at a time the keys and values that each layer made of that.
struct Memory {
  at::Tensor states;               // [B, S, width]
  at::Tensor lengths;              // [B] int64; undefined: no padding
  int64_t first_call = 0;          // as Pass::first_call, of the calls that look at this text
  const KvCache* cache = nullptr;  // instead of states and lengths
  // With a cache, if given: each layer appends the weights of its call, [B, heads, S].
  std::vector<at::Tensor>* weights = nullptr;
};

// What is the same for all layers of one pass.
struct Pass {
  Context* context = nullptr;
  const RopeTable* rope = nullptr;  // null: positions are already in the input
  at::Tensor key_lengths;           // [B] int64; undefined: no padding
  const Memory* memory = nullptr;   // of a decoder that reads another text too
  int64_t first_call = 0;           // AttentionCall::layer of layer 0
  at::Tensor segments{};            // [B, L] int32, the document of each token: rows see their own alone
};

// What a block attends to its own text with: Attention, or LatentAttention (latent.h).
class SelfAttention : public torch::nn::Module {
 public:
  // x: [B, L, width] -> [B, L, width]. With a cache in the context, the rows also see what is held there.
  // Tells the context's recorder, if it wants this layer.
  virtual at::Tensor forward(const at::Tensor& x, int64_t layer, const Pass& pass) const = 0;
};

// Multi-head attention: project, norm, rotate, attend, join, project. Keys and values are never repeated for
// the query heads of a group, and nothing of size L * L is made.
class Attention final : public SelfAttention {
 public:
  Attention(const AttentionOptions& options, AttentionParts parts);

  at::Tensor forward(const at::Tensor& x, int64_t layer, const Pass& pass) const override;

  // Over pass.memory, of which every row sees all: no positions, not causal. With Memory::cache x holds one
  // position of each row of the cache.
  at::Tensor cross(const at::Tensor& x, int64_t layer, const Pass& pass) const;

  // The keys and values of a memory [B, S, width]: [B, kv_heads, S, head_size] each, views.
  struct Keys {
    at::Tensor k, v;
  };
  Keys keys(const at::Tensor& memory) const;

 private:
  // [B, heads, L, head size] each, q and k turned by their positions
  struct Heads {
    at::Tensor q, k, v;
  };
  Heads project(const at::Tensor& x, const RopeTable* rope) const;
  at::Tensor joined(const at::Tensor& mixed) const;

  AttentionOptions options_;
  AttentionParts parts_;
};

}  // namespace regard::layer
