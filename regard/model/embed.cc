#include "regard/model/embed.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace regard::model {
namespace {

// The texts as ids, one row after another; checked and cut.
struct Encoded {
  std::vector<std::vector<int64_t>> ids;
  Embeddings result;
};

Encoded encode(const Loaded& loaded, std::span<const std::string> texts, const EmbedOptions& options) {
  const Config& config = loaded.model->config();
  const int64_t limit =
      loaded.embed_length > 0 ? std::min(loaded.embed_length, config.max_positions) : config.max_positions;
  const std::string& prefix = options.prefix ? *options.prefix : loaded.embed_prefix;
  Encoded encoded;
  for (size_t i = 0; i < texts.size(); ++i) {
    text::EncodeOptions encoding;
    if (options.truncate) encoding.max_length = static_cast<size_t>(limit);
    text::Encoding tokens = loaded.tokenizer->encode(prefix + texts[i], encoding);
    const auto count = static_cast<int64_t>(tokens.size());
    if (count > limit) {
      throw std::invalid_argument("embed: text " + std::to_string(i) + " has " + std::to_string(count) +
                                  " tokens; the model takes " + std::to_string(limit));
    }
    if (count == 0) throw std::invalid_argument("embed: text " + std::to_string(i) + " has no tokens");
    if (tokens.truncated > 0) encoded.result.truncated.push_back(static_cast<int64_t>(i));
    encoded.result.tokens.push_back(count);
    encoded.ids.push_back(std::move(tokens.ids));
  }
  return encoded;
}

}  // namespace

at::Tensor pool(const at::Tensor& hidden, const at::Tensor& lengths, Pooling pooling, bool normalize) {
  at::Tensor vectors;
  if (pooling == Pooling::cls) {
    vectors = hidden.select(1, 0);
  } else if (lengths.defined()) {
    const at::Tensor real = at::arange(hidden.size(1), at::kLong).unsqueeze(0) < lengths.unsqueeze(1);
    vectors = hidden.masked_fill(real.logical_not().unsqueeze(2), 0).sum(1) / lengths.unsqueeze(1);
  } else {
    vectors = hidden.mean(1);
  }
  return normalize ? vectors / vectors.norm(2, -1, true).clamp_min(1e-12) : vectors;
}

Embeddings embed(const Loaded& loaded, std::span<const std::string> texts, const EmbedOptions& options) {
  const at::NoGradGuard no_grad;
  if (options.batch_tokens < 1) throw std::invalid_argument("embed: batch_tokens must be at least 1");
  Encoded encoded = encode(loaded, texts, options);
  const auto all = static_cast<int64_t>(texts.size());
  const Pooling pooling = options.pooling.value_or(loaded.pooling);
  const bool normalize = options.normalize.value_or(loaded.normalize);
  const std::vector<int64_t>& tokens = encoded.result.tokens;

  // Texts of like length together: little padding.
  std::vector<int64_t> order(texts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return tokens[static_cast<size_t>(a)] < tokens[static_cast<size_t>(b)];
  });

  at::Tensor vectors = at::empty({all, loaded.model->config().width}, at::kFloat);
  for (int64_t begin = 0; begin < all;) {
    // The longest text of a batch is its last.
    int64_t end = begin + 1;
    while (end < all && (end + 1 - begin) * tokens[static_cast<size_t>(order[static_cast<size_t>(end)])] <=
                            options.batch_tokens) {
      ++end;
    }
    const int64_t longest = tokens[static_cast<size_t>(order[static_cast<size_t>(end - 1)])];
    Input input{at::zeros({end - begin, longest}, at::kLong), {}, at::empty({end - begin}, at::kLong)};
    for (int64_t row = begin; row < end; ++row) {
      const auto& ids = encoded.ids[static_cast<size_t>(order[static_cast<size_t>(row)])];
      std::copy(ids.begin(), ids.end(), input.ids[row - begin].mutable_data_ptr<int64_t>());
      input.lengths.mutable_data_ptr<int64_t>()[row - begin] = static_cast<int64_t>(ids.size());
    }
    // Without padding there is no mask to look at.
    if (tokens[static_cast<size_t>(order[static_cast<size_t>(begin)])] == longest)
      input.lengths = at::Tensor();
    layer::Context context;
    const at::Tensor pooled = pool(loaded.model->hidden(input, context), input.lengths, pooling, normalize);
    for (int64_t row = begin; row < end; ++row) {
      vectors[order[static_cast<size_t>(row)]].copy_(pooled[row - begin]);
    }
    begin = end;
    if (options.progress) options.progress(end, all);
  }
  encoded.result.vectors = std::move(vectors);
  return std::move(encoded.result);
}

}  // namespace regard::model
