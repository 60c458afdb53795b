#pragma once

#include <cstdint>
#include <vector>

#include "regard/train/shuffle.h"

namespace regard::train {

// Its name among generated tasks.
inline constexpr const char* kZipfMarkov = "zipf_markov";

// A made-up language with many words: each token depends on the two before it, and frequencies fall as 1 /
// rank (Zipf), token 0 being the most frequent. For language models whose softmax is what costs.
struct ZipfMarkov {
  int64_t items = 20000;   // tokens: 0 <= token < items
  int64_t classes = 32;    // what counts of the two tokens before is token mod classes
  int64_t successors = 8;  // after each pair of classes so many tokens are likely, the r-th as 1 / r
  double noise = 0.1;      // the share of tokens that are drawn without looking back
  uint64_t seed = kSeed;   // of the successors: which language it is
};

// `length` tokens; stream 0, 1, ...: texts of the same language. Throws std::invalid_argument for options out
// of range.
std::vector<int32_t> zipf_markov(const ZipfMarkov& language, int64_t length, uint64_t stream);

// The mean of -log P(token | the two before it) over a text, in nats: what no model of it can be better than
// on average.
double zipf_markov_loss(const ZipfMarkov& language, const std::vector<int32_t>& text);

}  // namespace regard::train
