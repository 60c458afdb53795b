#pragma once

#include <cstdint>
#include <optional>

#include "regard/attention/backward.h"
#include "regard/attention/spec.h"
#include "regard/kernel/parallel.h"

// Block attention, fine inside and coarse across: a row sees the keys of its own block as they are, and of
// each other block one key, the mean of its keys, with the mean of its values. The coarse key's logit gets
// ln(keys of the block), as many equal keys would have: with keys that are constant inside each block the
// result is exactly that of full attention. One softmax over both. O(L (block + L / block)) instead of
// O(L^2). (The compression branch of Native Sparse Attention, arXiv 2502.11089, and Combiner, arXiv
// 2107.05768, without what they learn.)
namespace regard::attention {

struct BlockAttentionOptions {
  int64_t block = 64;           // positions; the last block may be shorter. sqrt(L) is cheapest
  bool causal = false;          // the own block causally, and only complete blocks of the past
  std::optional<double> scale;  // default 1 / sqrt(Dk)
};

// Fills operands.out (float32) and operands.lse, if given. q, k, v: float32, Lq == Lk. Operands beside these
// are refused. Throws std::invalid_argument on a malformed call. Made of two calls of attention() and a
// merge().
void block_attention(const BlockAttentionOptions& options, const Operands& operands,
                     kernel::Parallel& parallel = kernel::default_parallel());

// Gradients of q, k and v (float32). operands.out and operands.lse as block_attention() made them.
void block_attention_backward(const BlockAttentionOptions& options, const Operands& operands,
                              const Arriving& arriving, const Gradients& gradients,
                              kernel::Parallel& parallel = kernel::default_parallel());

}  // namespace regard::attention
