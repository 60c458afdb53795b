#include "regard/train/token_stream.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "regard/train/shuffle.h"

namespace regard::train {
namespace {

// Rows of length + 1 tokens that begin at `starts`.
TokenBatch batch_at(const std::vector<int32_t>& tokens, const std::vector<int64_t>& starts, int64_t length) {
  const auto rows = static_cast<int64_t>(starts.size());
  TokenBatch out{at::empty({rows, length}, at::kLong), at::empty({rows, length}, at::kLong)};
  auto* ids = out.ids.mutable_data_ptr<int64_t>();
  auto* next = out.next.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t* from = tokens.data() + starts[static_cast<size_t>(row)];
    std::copy(from, from + length, ids + row * length);
    std::copy(from + 1, from + 1 + length, next + row * length);
  }
  return out;
}

}  // namespace

TokenStream::TokenStream(std::vector<int32_t> tokens, int64_t length, int64_t batch, uint64_t seed)
    : tokens_(std::move(tokens)),
      length_(length),
      batch_(batch),
      seed_(seed),
      // At every offset below `length` so many pieces and the token after the last one are there.
      pieces_((static_cast<int64_t>(tokens_.size()) - length) / length) {
  if (length < 1 || batch < 1)
    throw std::invalid_argument("TokenStream: length and batch must be at least 1");
  if (pieces_ < batch) {
    throw std::invalid_argument("a text of " + std::to_string(tokens_.size()) +
                                " tokens does not fill one batch of " + std::to_string(batch) + " x " +
                                std::to_string(length) + " tokens");
  }
}

TokenBatch TokenStream::at(int64_t step) {
  const int64_t pass = step / batches_per_pass();
  if (pass != pass_) {
    std::mt19937_64 generator = generator_of(seed_, static_cast<uint64_t>(pass));
    offset_ = static_cast<int64_t>(below(generator, static_cast<uint64_t>(length_)));
    order_ = shuffled(pieces_, generator);
    pass_ = pass;
  }
  std::vector<int64_t> starts(static_cast<size_t>(batch_));
  const int64_t first = step % batches_per_pass() * batch_;
  for (int64_t row = 0; row < batch_; ++row) {
    starts[static_cast<size_t>(row)] = offset_ + order_[static_cast<size_t>(first + row)] * length_;
  }
  return batch_at(tokens_, starts, length_);
}

std::vector<TokenBatch> pieces_in_order(const std::vector<int32_t>& tokens, int64_t length, int64_t batch,
                                        int64_t limit) {
  int64_t pieces = (static_cast<int64_t>(tokens.size()) - 1) / length;
  if (limit > 0) pieces = std::min(pieces, limit);
  std::vector<TokenBatch> out;
  for (int64_t piece = 0; piece < pieces; piece += batch) {
    std::vector<int64_t> starts;
    for (int64_t row = piece; row < std::min(pieces, piece + batch); ++row) starts.push_back(row * length);
    out.push_back(batch_at(tokens, starts, length));
  }
  return out;
}

}  // namespace regard::train
