// One pass over all weights of a head, a few rows at a time: everything that is known of it without a map.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "regard/kernel/parallel.h"
#include "regard/lens/head_scores.h"
#include "regard/lens/recording.h"

namespace regard::lens {

struct HeadSurvey {
  int64_t layer = 0;
  int64_t head = 0;
  PatternScores scores;
  Labelled label;
  float entropy = 0;        // mean over the rows that count, nats
  float entropy_share = 0;  // mean of entropy / ln(visible keys) over rows with two keys or more
  float sink = 0;
  std::vector<float> row_entropy;  // [tokens] nats
  std::vector<float> column_sums;  // [tokens]
  std::vector<float> block_mean;   // [blocks, blocks]
  std::vector<float> block_max;
  // The largest weight of one word on another, over 1 / (words that its row sees): no special token, no
  // punctuation, in a causal model not on the first token.
  int64_t best_row = -1;
  int64_t best_key = -1;
  float best_weight = 0;
  float best_lift = 0;
};

struct SurveyOptions {
  int64_t blocks = 64;                   // at most so many blocks a side
  kernel::Parallel* parallel = nullptr;  // nullptr: the process's pool
  // (heads done, heads in all), never two at once. May throw to stop.
  std::function<void(int64_t, int64_t)> progress;
};

// All heads of all kept layers, in order. Memory: O(tokens) a head and a few rows a worker; time: one score
// and one exp for each visible pair. `units` is what best_row and best_key count in.
std::vector<HeadSurvey> survey(const Recording& recording, std::span<const Unit> units,
                               const SurveyOptions& options = {});

// Tokens a side of a block, and how many blocks that makes.
struct Blocks {
  int64_t tokens = 1;
  int64_t count = 0;
};
Blocks choose_blocks(int64_t tokens, int64_t at_most);

TextPatterns text_patterns(const Recording& recording);

}  // namespace regard::lens
