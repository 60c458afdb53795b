#include "regard/train/token_stream.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "regard/train/shuffle.h"

namespace regard::train {
namespace {

// Positions begin again with each document; the first of a piece may have begun before it.
void add_documents(const TokenText& text, const std::vector<int64_t>& starts, int64_t length,
                   TokenBatch& batch) {
  const auto rows = static_cast<int64_t>(starts.size());
  batch.segments = at::empty({rows, length}, at::kInt);
  batch.positions = at::empty({rows, length}, at::kLong);
  auto* segments = batch.segments.mutable_data_ptr<int32_t>();
  auto* positions = batch.positions.mutable_data_ptr<int64_t>();
  auto* next = batch.next.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t* document = text.documents.data() + starts[static_cast<size_t>(row)];
    int64_t position = 0;
    for (int64_t i = 0; i < length; ++i, ++position) {
      if (i > 0 && document[i] != document[i - 1]) position = 0;
      const int64_t at = row * length + i;
      segments[at] = document[i] - document[0];
      positions[at] = position;
      if (document[i + 1] != document[i]) next[at] = kNothing;
    }
  }
}

// Rows of length + 1 tokens that begin at `starts`.
TokenBatch batch_at(const TokenText& text, const std::vector<int64_t>& starts, int64_t length) {
  const auto rows = static_cast<int64_t>(starts.size());
  TokenBatch out{at::empty({rows, length}, at::kLong), at::empty({rows, length}, at::kLong)};
  auto* ids = out.ids.mutable_data_ptr<int64_t>();
  auto* next = out.next.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t* from = text.tokens.data() + starts[static_cast<size_t>(row)];
    std::copy(from, from + length, ids + row * length);
    std::copy(from + 1, from + 1 + length, next + row * length);
  }
  if (!text.documents.empty()) add_documents(text, starts, length, out);
  if (text.learned.empty()) return out;
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* learned = text.learned.data() + starts[static_cast<size_t>(row)] + 1;
    for (int64_t i = 0; i < length; ++i) {
      if (learned[i] == 0) next[row * length + i] = kNothing;
    }
  }
  return out;
}

}  // namespace

model::Input input_of(const TokenBatch& batch) {
  return {.ids = batch.ids,
          .type_ids = {},
          .lengths = {},
          .segments = batch.segments,
          .positions = batch.positions};
}

TokenStream::TokenStream(TokenText text, int64_t length, int64_t batch, uint64_t seed)
    : text_(std::move(text)),
      length_(length),
      batch_(batch),
      seed_(seed),
      offsets_(text_.learned.empty() ? length : 1),
      // At every offset so many pieces and the token after the last one are there.
      pieces_((static_cast<int64_t>(text_.tokens.size()) - offsets_) / length) {
  if (length < 1 || batch < 1)
    throw std::invalid_argument("TokenStream: length and batch must be at least 1");
  if (pieces_ < batch) {
    throw std::invalid_argument("a text of " + std::to_string(text_.tokens.size()) +
                                " tokens does not fill one batch of " + std::to_string(batch) + " x " +
                                std::to_string(length) + " tokens");
  }
}

TokenBatch TokenStream::at(int64_t step) {
  const int64_t pass = step / batches_per_pass();
  if (pass != pass_) {
    std::mt19937_64 generator = generator_of(seed_, static_cast<uint64_t>(pass));
    offset_ = static_cast<int64_t>(below(generator, static_cast<uint64_t>(offsets_)));
    order_ = shuffled(pieces_, generator);
    pass_ = pass;
  }
  std::vector<int64_t> starts(static_cast<size_t>(batch_));
  const int64_t first = step % batches_per_pass() * batch_;
  for (int64_t row = 0; row < batch_; ++row) {
    starts[static_cast<size_t>(row)] = offset_ + order_[static_cast<size_t>(first + row)] * length_;
  }
  return batch_at(text_, starts, length_);
}

std::vector<TokenBatch> pieces_in_order(const TokenText& text, int64_t length, int64_t batch, int64_t limit) {
  int64_t pieces = (static_cast<int64_t>(text.tokens.size()) - 1) / length;
  if (limit > 0) pieces = std::min(pieces, limit);
  std::vector<TokenBatch> out;
  for (int64_t piece = 0; piece < pieces; piece += batch) {
    std::vector<int64_t> starts;
    for (int64_t row = piece; row < std::min(pieces, piece + batch); ++row) starts.push_back(row * length);
    out.push_back(batch_at(text, starts, length));
  }
  return out;
}

}  // namespace regard::train
