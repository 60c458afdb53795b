#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "regard/model/beam_search.h"
#include "regard/model/generate.h"
#include "regard/model/translator.h"

namespace regard::model {

struct TranslateOptions {
  int64_t bos = 0, eos = 0, pad = 0;
  int64_t beam = 1;             // hypotheses that are followed of each text; 1: greedy
  double length_penalty = 0.6;  // alpha of length_norm(); 0: none, which favours short ones
  // Tokens of a translation at most, its end counted; 0: twice the source's and 10. Never more than the
  // model writes.
  int64_t max_tokens = 0;
  // Instead of a search: each next token is drawn. What text i draws depends on (seed, i) alone.
  std::optional<Sampling> sampling;
  bool weights = false;     // where each token looked
  int64_t batch_rows = 64;  // hypotheses in one step of the model, about
  // Called after each step: (texts done, texts in all). May throw to interrupt.
  std::function<void(int64_t done, int64_t all)> progress;
};

struct Translation : Hypothesis {
  // With options.weights, of a model that has attention: [tokens, cross heads, source tokens] float32; row t
  // is of the step that wrote token t.
  at::Tensor weights;
};

// Translates some texts, each given as the encoder reads it (source_ids()): by beam search (beam_search.h) or
// drawn. bos and pad are never written. The result for a text depends on the others by rounding only. Throws
// std::invalid_argument for an empty source, one longer than the model takes (both numbers named) and options
// out of range.
std::vector<Translation> translate(Translator& model, const std::vector<std::vector<int64_t>>& sources,
                                   const TranslateOptions& options);

}  // namespace regard::model
