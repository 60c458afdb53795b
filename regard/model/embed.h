#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regard/model/model.h"

namespace regard::model {

struct EmbedOptions {
  bool truncate = false;              // cut texts that are too long; else they are an error
  std::optional<std::string> prefix;  // instead of the model's own (Loaded::embed_prefix)
  std::optional<Pooling> pooling;     // instead of the model's own
  std::optional<bool> normalize;
  int64_t batch_tokens = 4096;  // tokens in one pass, padding included
  // Called after each batch: (texts done, texts in all). May throw to interrupt.
  std::function<void(int64_t done, int64_t all)> progress;
};

struct Embeddings {
  at::Tensor vectors;              // [texts, width] float32, in the order of the texts
  std::vector<int64_t> tokens;     // of each text, special tokens included, after truncation
  std::vector<int64_t> truncated;  // indices of the texts that were cut
};

// One vector per text. Texts are batched by length. Throws std::invalid_argument for a text longer than the
// model's embed_length (both numbers and the text's index are named) unless `truncate` is set.
Embeddings embed(const Loaded& loaded, std::span<const std::string> texts, const EmbedOptions& options = {});

// hidden [B, L, width], lengths [B] or undefined -> [B, width]: the mean over the real tokens, or the first
// token's state; scaled to length 1 if asked.
at::Tensor pool(const at::Tensor& hidden, const at::Tensor& lengths, Pooling pooling, bool normalize);

}  // namespace regard::model
