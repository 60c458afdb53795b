#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "regard/attention/mask.h"
#include "regard/autograd/attention.h"

// How alike a query and a key are: the score functions of the field over one engine. All but the tanh forms
// are projections or row scales of q and k before a dot product, so that every mask, option and kernel of
// attention() serves them.
namespace regard::layer {

enum class ScoreKind : uint8_t {
  dot,         // q . k (Luong et al. 2015, arXiv 1508.04025, section 3.1)
  scaled_dot,  // q . k / sqrt(Dk) (Vaswani et al. 2017, arXiv 1706.03762)
  cosine,   // q . k / (|q| |k| tau), tau learned for each head, at least 0.01, 0.1 at first (Liu et al. 2022,
            // Swin v2, arXiv 2111.09883). Without tau no weight of m keys could exceed e^2 / (e^2 + m - 1)
  general,  // q^T W k, sizes may differ (Luong)
  additive,       // v^T tanh(W q + U k) (Bahdanau et al. 2015, arXiv 1409.0473)
  concat,         // v^T tanh(W [q; k]) (Luong): additive with W = [W U]
  concat_linear,  // w^T [q; k], as some articles write it. A trap: w's part for q adds the same to all logits
                  // of a row, which softmax takes away, so every query gets the same weights. It learns a
                  // prior of keys, no more
};

// "dot", "scaled_dot", ... Throws std::invalid_argument for other names, with the allowed ones.
ScoreKind score_kind(const std::string& name);
const char* name(ScoreKind kind);

struct ScoreOptions {
  ScoreKind kind = ScoreKind::scaled_dot;
  int64_t heads = 1;
  int64_t query_size = 1;   // Dk of q
  int64_t key_size = 0;     // Dk of k, 0: that of q; other sizes: general, additive, concat, concat_linear
  int64_t hidden_size = 0;  // of the tanh forms, 0: query_size
};

// Attention with one of them. Its parameters belong to each head apart.
class Score : public torch::nn::Module {
 public:
  explicit Score(const ScoreOptions& options);

  // q: [B, H, Lq, query_size], k: [B, Hkv, Lk, key_size], v: [B, Hkv, Lk, Dv], float32 -> [B, H, Lq, Dv].
  // general and the tanh forms need Hkv = H. lse as autograd::attention().
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const attention::Mask& mask = {}, const autograd::AttentionExtras& extras = {},
                     at::Tensor* lse = nullptr) const;

  const ScoreOptions& options() const { return options_; }

 private:
  ScoreOptions options_;
  at::Tensor temperature_;  // [H]
  at::Tensor weight_;       // general [H, Dq, Dk]; concat [H, Da, Dq + Dk]; concat_linear [H, Dq + Dk]
  at::Tensor query_weight_, key_weight_;  // additive [H, Da, Dq], [H, Da, Dk]
  at::Tensor vector_;                     // [H, Da]
};

// Sharper (T < 1) or flatter (T > 1) attention: q / T.
at::Tensor with_temperature(const at::Tensor& q, double temperature);

// Entropy-invariant scaling (Su 2021, https://kexue.fm/archives/8823): row i of q [B, H, Lq, Dk] times ln(n)
// / ln(trained_length), n the number of keys that the row sees: `keys`, or where it is causal keys - Lq + i
// + 1. A row that sees one key stays as it is (ln 1 = 0 would say nothing: its weight is 1 anyway). At n =
// trained_length nothing changes.
at::Tensor with_log_length(const at::Tensor& q, int64_t keys, int64_t trained_length, bool causal);

}  // namespace regard::layer
