#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "regard/model/model.h"

namespace regard::train {

// A text as tokens; of which document each one is (rising from 0), or empty: all one; whether each one is to
// be predicted, or empty: all are. A text that says so has no document that lies in two pieces.
struct TokenText {
  std::vector<int32_t> tokens;
  std::vector<int32_t> documents;
  std::vector<uint8_t> learned{};
};

// Inputs and what should follow each of them: [B, L] int64 both. With documents also where each token
// belongs, as model::Input has it; what follows the last token of a document is kNothing, and so is what is
// not to be predicted.
struct TokenBatch {
  at::Tensor ids;
  at::Tensor next;
  at::Tensor segments{};
  at::Tensor positions{};
};
inline constexpr int64_t kNothing = -100;  // libtorch's ignore_index
model::Input input_of(const TokenBatch& batch);

// One long text as tokens, cut into pieces of L tokens for a language model. Which pieces a step sees is a
// function of (seed, step) alone: a training that stopped goes on where it was without keeping a position.
// Each pass over the text cuts it at another offset (not where documents must stay whole) and takes the
// pieces in another order; what is too short for a piece or a batch waits for the next pass.
class TokenStream {
 public:
  // Throws std::invalid_argument for a text that does not fill one batch.
  TokenStream(TokenText text, int64_t length, int64_t batch, uint64_t seed);

  int64_t tokens() const { return static_cast<int64_t>(text_.tokens.size()); }
  int64_t batches_per_pass() const { return pieces_ / batch_; }

  TokenBatch at(int64_t step);

 private:
  TokenText text_;
  int64_t length_, batch_;
  uint64_t seed_;
  int64_t offsets_;     // that a pass may begin at
  int64_t pieces_;      // of a pass
  int64_t pass_ = -1;   // which `order_` is of
  int64_t offset_ = 0;  // where its first piece begins
  std::vector<int64_t> order_;
};

// The pieces of a whole text one after the other, up to `batch` at a time, for validation; the last token of
// one piece is the first of the next. limit: pieces at most, 0 for all.
std::vector<TokenBatch> pieces_in_order(const TokenText& text, int64_t length, int64_t batch, int64_t limit);

}  // namespace regard::train
