#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "regard/model/model.h"

namespace regard::model {

// How the next token is chosen. temperature 0: the most likely one (ties: the lowest id).
struct Sampling {
  double temperature = 0.0;
  int64_t top_k = 0;   // keep the k most likely tokens; 0: all
  double top_p = 1.0;  // then the smallest set of tokens that holds this probability
  double min_p = 0.0;  // then those at least this share as likely as the most likely one (arXiv 2407.01082)
  // Logits of tokens that were read or made already are divided by this where positive, else multiplied
  // (CTRL, Keskar et al. 2019, section 4.1): above 1 repeats less. Also with temperature 0.
  double repetition_penalty = 1.0;
  uint64_t seed = 0;
};

struct GenerateOptions {
  int64_t max_tokens = 256;
  Sampling sampling;
  std::vector<int64_t> stop_ids;  // generation ends after one of these; it is the last of `ids`
  int64_t prefill_chunk = 512;    // prompt tokens in one pass: bounds the memory of long prompts
  kernel::CacheType cache_type = kernel::CacheType::f32;  // what is kept of keys and values
  layer::Recorder* recorder = nullptr;
  // Called with each new token as soon as it is known; false ends generation after it.
  std::function<bool(int64_t id)> on_token;
  // Called after each chunk of the prompt: (tokens read, tokens in all). May throw to interrupt.
  std::function<void(int64_t done, int64_t all)> on_prompt;
};

struct Generation {
  std::vector<int64_t> ids;  // new tokens only
  int64_t prompt_tokens = 0;
  double prompt_seconds = 0;  // until the first new token is known
  double decode_seconds = 0;  // for the ids.size() - 1 others
  bool stopped = false;       // by a stop id; else by max_tokens, on_token or the model's length
};

// Continues a prompt. Throws std::invalid_argument for an empty prompt, a model without a language-model head
// (or that is not causal), a prompt longer than the model takes (both numbers named) and options out of
// range.
Generation generate(Model& model, std::span<const int64_t> prompt, const GenerateOptions& options = {});

// One choice from logits [vocabulary] float32, with `draw` uniform in [0, 1). `seen`: the ids that the
// repetition penalty is about, in any number. What generate() uses.
int64_t choose_token(const at::Tensor& logits, const Sampling& sampling, double draw,
                     std::span<const int64_t> seen = {});

// Negative log-likelihood of each token given those before it, in nats: L - 1 float64 values for L ids. Reads
// the text in one window, through the context's cache if it has one; logits are made in slices, so that
// memory does not grow with L * vocabulary. Throws like generate(). progress as in layer::Context.
std::vector<double> token_losses(Model& model, std::span<const int64_t> ids, layer::Context& context);

}  // namespace regard::model
