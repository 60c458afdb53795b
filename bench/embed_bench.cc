#include "bench/embed_bench.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/plain_bert.h"
#include "regard/model/embed.h"
#include "regard/model/model.h"
#include "regard/model/registry.h"

namespace regard::bench {
namespace {

// Words of the vocabulary in a seeded order: lengths are what matters here, not sense.
std::vector<std::string> make_sentences(const text::Tokenizer& tokenizer, int64_t count) {
  std::vector<std::string> words;
  for (size_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string& piece = tokenizer.piece_of(static_cast<text::TokenId>(id));
    const bool plain = std::all_of(piece.begin(), piece.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    if (plain && piece.size() > 1) words.push_back(piece);
  }
  std::mt19937 random(7);
  std::vector<std::string> sentences;
  for (int64_t i = 0; i < count; ++i) {
    std::string sentence;
    for (uint32_t left = 5 + random() % 36; left > 0; --left) {
      if (!sentence.empty()) sentence += ' ';
      sentence += words[random() % words.size()];
    }
    sentences.push_back(sentence + ".");
  }
  return sentences;
}

// What embed() does around the model, for the peer: batches by length, at most batch_tokens each.
at::Tensor embed_plainly(PlainBert& peer, const text::Tokenizer& tokenizer,
                         const std::vector<std::string>& texts, int64_t batch_tokens) {
  std::vector<std::vector<int64_t>> ids;
  for (const std::string& text : texts) ids.push_back(tokenizer.encode(text).ids);
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ids[a].size() < ids[b].size(); });
  std::vector<at::Tensor> rows(texts.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() &&
           (end + 1 - begin) * ids[order[end]].size() <= static_cast<size_t>(batch_tokens)) {
      ++end;
    }
    const auto batch = static_cast<int64_t>(end - begin);
    const auto longest = static_cast<int64_t>(ids[order[end - 1]].size());
    at::Tensor padded = at::zeros({batch, longest}, at::kLong);
    at::Tensor lengths = at::empty({batch}, at::kLong);
    for (int64_t i = 0; i < batch; ++i) {
      const auto& row = ids[order[begin + static_cast<size_t>(i)]];
      std::copy(row.begin(), row.end(), padded[i].mutable_data_ptr<int64_t>());
      lengths.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(row.size());
    }
    if (static_cast<int64_t>(ids[order[begin]].size()) == longest) lengths = at::Tensor();
    const at::Tensor made = peer.embed(padded, lengths);
    for (int64_t i = 0; i < batch; ++i) rows[order[begin + static_cast<size_t>(i)]] = made[i];
    begin = end;
  }
  return at::stack(rows);
}

double milliseconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

nlohmann::json embed_bench(int64_t sentences, int64_t repeats, bool quantize) {
  const model::Loaded ours =
      model::load("minilm", {.precision = quantize ? model::Precision::int8 : model::Precision::f32});
  PlainBert peer(model::known_model("minilm").path().string());
  const std::vector<std::string> texts = make_sentences(*ours.tokenizer, sentences);
  const model::EmbedOptions options;
  model::Embeddings made = model::embed(ours, texts, options);
  at::Tensor expected = embed_plainly(peer, *ours.tokenizer, texts, options.batch_tokens);
  const double difference = (made.vectors - expected).abs().max().item<double>();

  const double cosine = (made.vectors * expected).sum(1).min().item<double>();  // all of length 1

  double ours_ms = std::numeric_limits<double>::infinity();
  double peer_ms = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < repeats; ++i) {
    ours_ms = std::min(ours_ms, milliseconds([&] { made = model::embed(ours, texts, options); }));
    peer_ms = std::min(peer_ms, milliseconds([&] {
                         expected = embed_plainly(peer, *ours.tokenizer, texts, options.batch_tokens);
                       }));
  }
  return {{"op", "embed"},
          {"model", "minilm"},
          {"sentences", sentences},
          {"tokens", std::accumulate(made.tokens.begin(), made.tokens.end(), int64_t{0})},
          {"threads", at::get_num_threads()},
          {"ours_ms", ours_ms},
          {"peer", "torch"},
          {"peer_ms", peer_ms},
          {"ratio", peer_ms / ours_ms},
          {"precision", model::name(ours.precision)},
          {"largest_difference", difference},
          {"lowest_cosine", cosine}};
}

}  // namespace regard::bench
