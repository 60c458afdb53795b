// A report made from hand-made queries and keys, so that the page can be tested without a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/lens/report.h"

namespace regard::web::testing {

struct Sample {
  std::vector<std::string> words;  // one token each; a word that starts with "##" continues the one before it
  int64_t layers = 2;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t head_size = 16;
  bool causal = false;
  bool special = true;        // [CLS] and [SEP] around the words
  int64_t focus = 1;          // token
  int64_t carried_heads = 8;  // the first so many
  int64_t most_blocks = 64;
};

// Weights follow from q and k in float64; lse, entropy, block maps and the focus from them.
lens::Report sample_report(const Sample& sample);

// [tokens, tokens] of one head, float64.
std::vector<double> sample_weights(const lens::Report& report, int64_t layer, int64_t head);

}  // namespace regard::web::testing
