// Recordings made by hand, for the tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "regard/lens/recording.h"

namespace regard::lens::made {

// One layer whose weights are softmax(logits), [heads][n, n]: q is the row of logits, k the identity.
inline RecordedLayer layer_of_logits(const std::vector<std::vector<float>>& logits, int64_t n, bool causal,
                                     int64_t number = 0) {
  RecordedLayer layer;
  layer.layer = number;
  layer.spec.scale = 1.0F;
  if (causal) layer.spec.mask = attention::Mask::causal(attention::Align::top_left);
  layer.heads = static_cast<int64_t>(logits.size());
  layer.kv_heads = 1;
  layer.tokens = n;
  layer.key_size = n;
  std::vector<float> q, k(static_cast<size_t>(n * n));
  for (const auto& head : logits) q.insert(q.end(), head.begin(), head.end());
  for (int64_t i = 0; i < n; ++i) k[static_cast<size_t>(i * n + i)] = 1;
  layer.q = RecordedLayer::pack(q, Precision::f32);
  layer.k = RecordedLayer::pack(k, Precision::f32);
  compute_lse(layer);
  return layer;
}

inline Recording recording(const std::vector<std::string>& words, std::vector<RecordedLayer> layers,
                           bool causal) {
  Recording out;
  out.model = "made by hand";
  out.causal = causal;
  out.model_layers = static_cast<int64_t>(layers.size());
  out.layers = std::move(layers);
  for (size_t i = 0; i < words.size(); ++i) {
    Token token;
    token.piece = token.text = words[i];
    token.id = static_cast<int64_t>(i);
    for (size_t j = 0; j < i; ++j) {
      if (words[j] == words[i]) {
        token.id = static_cast<int64_t>(j);
        break;
      }
    }
    token.special = words[i].size() > 2 && words[i].front() == '[' && words[i].back() == ']';
    token.punctuation = words[i] == "." || words[i] == ",";
    out.tokens.push_back(token);
    out.words.push_back({words[i], static_cast<int64_t>(i), 1, token.special, token.punctuation});
  }
  return out;
}

inline std::vector<std::string> words(int64_t n) {
  std::vector<std::string> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(std::string("w").append(std::to_string(i)));
  return out;
}

// Logits that put (nearly) all weight of row i on key target(i); -1 leaves the row even.
template <class Target>
std::vector<float> pointing(int64_t n, Target target, float logit = 40) {
  std::vector<float> out(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t j = target(i);
    if (j >= 0 && j < n) out[static_cast<size_t>(i * n + j)] = logit;
  }
  return out;
}

inline std::vector<float> noise(size_t count, uint32_t seed, float size = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> out(count);
  for (float& x : out) x = normal(random);
  return out;
}

// A layer of random q, k and v.
inline RecordedLayer random_layer(int64_t heads, int64_t kv_heads, int64_t n, int64_t size, bool causal,
                                  uint32_t seed, Precision precision = Precision::f32, int64_t number = 0) {
  RecordedLayer layer;
  layer.layer = number;
  layer.spec.scale = 1.0F / std::sqrt(static_cast<float>(size));
  if (causal) layer.spec.mask = attention::Mask::causal(attention::Align::top_left);
  layer.heads = heads;
  layer.kv_heads = kv_heads;
  layer.tokens = n;
  layer.key_size = layer.value_size = size;
  layer.precision = precision;
  layer.q = RecordedLayer::pack(noise(static_cast<size_t>(heads * n * size), seed, 2), precision);
  layer.k = RecordedLayer::pack(noise(static_cast<size_t>(kv_heads * n * size), seed + 1), precision);
  layer.v = RecordedLayer::pack(noise(static_cast<size_t>(kv_heads * n * size), seed + 2), precision);
  compute_lse(layer);
  return layer;
}

}  // namespace regard::lens::made
