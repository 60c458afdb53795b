// What is kept of the attention calls of one text: Q, K and the log-sum-exp of each row, never the L x L
// maps. Any weight follows as exp(logit - lse), so a recording answers for every row and tile at O(L) memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "regard/attention/spec.h"
#include "regard/lens/report.h"

namespace regard::lens {

// How q, k and v are kept. In f16 weights are approximate: to about 1e-3 of a weight where logits are
// near 10.
enum class Precision : uint8_t { f32, f16 };

// One layer's calls over the whole text.
struct RecordedLayer {
  int64_t layer = 0;  // its number in the model
  attention::Spec spec;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t tokens = 0;
  int64_t key_size = 0;
  int64_t value_size = 0;  // 0: v was not kept
  int64_t width = 0;       // of x; 0: x was not kept
  Precision precision = Precision::f32;
  std::vector<std::byte> q;  // [heads, tokens, key_size]
  std::vector<std::byte> k;  // [kv_heads, tokens, key_size]
  std::vector<std::byte> v;  // [kv_heads, tokens, value_size]
  std::vector<float> lse;    // [heads, tokens]
  std::vector<float> x;      // [tokens, width], what q, k and v are projected from
  // For a dense mask in spec: [1 or heads, tokens, tokens], nonzero = may attend. Only files bring one.
  std::shared_ptr<const std::vector<uint8_t>> dense_mask;

  // Fills q, k or v from floats, rounding to the precision.
  static std::vector<std::byte> pack(std::span<const float> values, Precision precision);

  // Views of what is kept. Where v was not, it is k (the weights do not depend on it).
  attention::Operands operands() const;
  // The same for one query head: [1, 1, tokens, ...].
  attention::Operands operands(int64_t head) const;
  float scale() const;
  int64_t window() const;  // keys that a row sees to its left, itself included; 0: no such bound

  std::vector<float> query(int64_t head, int64_t position) const;  // [key_size]
  std::vector<float> key(int64_t head, int64_t position) const;    // of the KV head that `head` reads
  std::vector<float> value(int64_t head, int64_t position) const;  // empty where v was not kept

  // Attention weights of query head `head`, rows [row, row + rows) and keys [key, key + keys), row-major;
  // masked pairs 0.
  std::vector<float> weights(int64_t head, int64_t row, int64_t rows, int64_t key, int64_t keys) const;
  std::vector<float> weights_row(int64_t head, int64_t row) const { return weights(head, row, 1, 0, tokens); }
  // Logits of the same; masked pairs -inf.
  std::vector<float> logits(int64_t head, int64_t row, int64_t rows, int64_t key, int64_t keys) const;

  // Keys [begin, end) hold every key that the row sees; `count` of them are visible.
  struct Visible {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t count = 0;
  };
  Visible visible(int64_t head, int64_t row) const;
};

struct Recording {
  std::string model;         // name of the model, or the file
  std::string architecture;  // empty for a file
  std::string text;
  int64_t model_layers = 0;
  bool causal = false;
  Precision precision = Precision::f32;
  std::vector<Token> tokens;
  std::vector<Unit> words;            // the tokens grouped into words; empty when unknown
  std::vector<RecordedLayer> layers;  // by rising number

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t heads() const { return layers.empty() ? 0 : layers.front().heads; }
  // Throws std::invalid_argument naming the layers that were kept.
  const RecordedLayer& at_layer(int64_t layer) const;
};

// Throws std::invalid_argument where sizes do not fit together.
void check(const Recording& recording);

// Fills lse of a layer from its q and k.
void compute_lse(RecordedLayer& layer);

}  // namespace regard::lens
