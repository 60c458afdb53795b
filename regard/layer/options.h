#pragma once

#include <cstdint>
#include <vector>

#include "regard/layer/rope.h"

// What configurations and recipes say of layers, apart from the modules: whoever only reads a configuration
// is spared torch/nn/module.h, which costs each file seven seconds of compiling.
namespace regard::layer {

// gelu is the exact form (erf), gelu_tanh its approximation.
enum class Activation : uint8_t { gelu, gelu_tanh, silu, relu };

// Where a block normalises: pre: x + f(norm(x)) (GPT-2, Llama); post: norm(x + f(x)) (the first Transformer,
// BERT).
enum class NormPlace : uint8_t { pre, post };

struct LatentOptions {
  int64_t width = 1;
  int64_t heads = 1;
  int64_t query_rank = 0;  // of the latent that queries come from; 0: straight from the input
  int64_t rank = 1;        // of the latent that keys and values come from
  int64_t nope = 1;        // numbers of a head's query and key that know no position
  int64_t rope = 2;        // numbers that are rotated; one key for all heads
  int64_t value = 1;
  double epsilon = 1e-6;  // of the norms of both latents
  double dropout = 0;     // of the weights of a block's attention, in training
  RopePairs pairs = RopePairs::neighbours;
};

struct VocabularyHeadOptions {
  enum class Kind : uint8_t { adaptive, hierarchical };
  Kind kind = Kind::adaptive;
  int64_t width = 1;
  std::vector<int64_t> counts;   // how often each token occurs in the training text
  std::vector<int64_t> cutoffs;  // adaptive, see AdaptiveSoftmaxOptions
  double division = 4;           // the same
};

}  // namespace regard::layer
