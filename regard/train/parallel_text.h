// Sentences in two languages, and batches of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "regard/text/tokenizer.h"

namespace regard::train {

// A text and what it may be in the other language.
struct TextPair {
  std::string source;
  std::vector<std::string> references;  // one or more
};

// Lines "source<TAB>reference[<TAB>reference...]" of UTF-8. swapped: the other direction; each reference is
// then a source of its own, and lines that share one give it all their sources as references, in the order of
// the file. Throws io::Error naming the line: no tab, an empty side, bytes that are not UTF-8.
std::vector<TextPair> read_parallel_text(const std::filesystem::path& path, bool swapped);
// The same for text that is there already; `name` stands in messages.
std::vector<TextPair> parse_parallel_text(std::string_view text, const std::string& name, bool swapped);

// Ids as a translator learns them.
struct TokenPair {
  std::vector<int32_t> source;  // ends with </s>
  std::vector<int32_t> target;  // from <s> to </s>
};

// What a text is to an encoder, and a target to a decoder. Special tokens are none of the text's.
std::vector<int32_t> source_ids(const text::Tokenizer& tokenizer, std::string_view text);
std::vector<int32_t> target_ids(const text::Tokenizer& tokenizer, std::string_view text);
// One pair for each reference, on all threads of libtorch.
std::vector<TokenPair> token_pairs(const text::Tokenizer& tokenizer, const std::vector<TextPair>& texts);

struct PairBatch {
  at::Tensor source;          // [B, S] int64, padded on the right
  at::Tensor source_lengths;  // [B] int64; undefined where nothing is padded
  at::Tensor target;          // [B, T] int64: <s> and the text, padded on the right
  at::Tensor next;            // [B, T] int64: what follows each, the text and </s>
  at::Tensor learned;         // [tokens] int64: places of `next`, row by row, that are not padding
};

struct BatchOptions {
  int64_t tokens = 4096;     // of a batch at most, padding included: rows * (longest source + longest target)
  int64_t max_length = 128;  // ids of either side; longer pairs are left out
  int64_t pad = 0;           // the id that padding has
};

// Batches of pairs of nearly the same length. Each pass over the text has every pair once; which ones share a
// batch and the order of the batches are a function of (seed, step) alone, so that a training goes on where
// it was without keeping a position. All passes have the same number of batches.
class PairBatches {
 public:
  // Throws std::invalid_argument where two texts of max_length do not fit into a batch, and where no pair is
  // left.
  PairBatches(std::vector<TokenPair> pairs, const BatchOptions& options, uint64_t seed);

  int64_t pairs() const { return static_cast<int64_t>(pairs_.size()); }
  int64_t left_out() const { return left_out_; }  // pairs that were too long
  int64_t per_pass() const { return static_cast<int64_t>(begins_.size()) - 1; }
  int64_t tokens(int64_t step);  // learned in this step's batch

  PairBatch at(int64_t step);
  // The pairs of that batch, by their numbers among those that were given.
  std::vector<int64_t> numbers(int64_t step);
  // Batch 0, 1, ... per_pass() - 1 of an order that never changes: for validation.
  PairBatch in_order(int64_t index) const;

 private:
  void begin_pass(int64_t pass);
  PairBatch batch(const int64_t* rows, int64_t count) const;

  std::vector<TokenPair> pairs_;  // by length
  std::vector<int64_t> number_;   // of each, as they were given
  BatchOptions options_;
  uint64_t seed_;
  int64_t left_out_ = 0;
  std::vector<int64_t> begins_;  // of each batch in the order by length; then the end
  int64_t pass_ = -1;            // which the next two are of
  std::vector<int64_t> rows_;    // pairs of the same length change places
  std::vector<int64_t> order_;   // of the batches
};

}  // namespace regard::train
