#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "regard/attention/linear.h"
#include "regard/layer/basic.h"

// Layers over linear attention (attention/linear.h). Each decodes: forward() with a state reads what came
// before and leaves what comes after in it, whatever pieces a text arrives in.
namespace regard::layer {

// What a layer remembers of a text: of constant size. Copies share nothing that is ever written: a copy is a
// fork.
struct LinearState {
  at::Tensor state;      // [B, Hkv, Dk, Dv]; undefined before the first token
  at::Tensor norm;       // [B, Hkv, Dk, 1]; with a denominator
  int64_t position = 0;  // tokens so far
};

// [B, L, H D] <-> [B, H, L, D], without copies.
at::Tensor split_heads(const at::Tensor& x, int64_t heads);
at::Tensor join_heads(const at::Tensor& x);

struct LinearAttentionOptions {
  int64_t width = 1;
  int64_t heads = 1;
  int64_t kv_heads = 0;  // 0: as many as heads
  enum class Feature : uint8_t {
    elu1,      // Katharopoulos et al. 2020, arXiv 2006.16236
    relu,      // SANA's LiteLA, arXiv 2410.10629, section 2.2
    cosformer  // Qin et al. 2022, arXiv 2202.08791: relu, reweighted by cos(pi / 2 (i - j) / length)
  };
  Feature feature = Feature::elu1;
  bool causal = true;
  // cosformer: M, no shorter than any text; a longer one throws. 0: the length of the text at hand, without
  // a state only.
  int64_t length = 0;
  double epsilon = 1e-6;  // added to denominators; cosformer: their least value
  bool bias = true;       // of the projections
};

class LinearAttention : public torch::nn::Module {
 public:
  explicit LinearAttention(const LinearAttentionOptions& options);

  // x: [B, L, width] -> the same. key_lengths: int64 [B], later tokens are padding. state: causal only.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& key_lengths = {},
                     LinearState* state = nullptr) const;

 private:
  LinearAttentionOptions options_;
  std::shared_ptr<Linear> q_, k_, v_, out_;
};

// cosFormer's features of rows first, first + 1, ... of a text: [relu(x) sin; relu(x) cos] of the angle
// pi position / (2 length), positions from 1. x: [B, H, L, D] -> [B, H, L, 2 D].
at::Tensor cosformer_features(const at::Tensor& x, int64_t first, int64_t length);

struct GatedDeltaOptions {
  int64_t width = 1;
  int64_t heads = 1;
  enum class Gate : uint8_t {
    none,
    head,    // a decay for each token and head (gated DeltaNet, arXiv 2412.06464)
    feature  // one for each feature of its keys too (gated linear attention, arXiv 2312.06635)
  };
  Gate gate = Gate::head;
  bool delta = true;           // keys overwrite what the state holds for them (arXiv 2406.06484)
  double temperature = 16;     // of the gates: log decay = log sigmoid(x W) / temperature
  double norm_epsilon = 1e-6;  // of the RMSNorm of each head's output
};

// Linear attention that forgets and, by the delta rule, corrects: q, k = SiLU(x W), with delta of length 1
// each; v = x W; beta = sigmoid(x W); out = W (RMSNorm(heads) SiLU(x W)). Without the short convolutions that
// published models put before q, k and v.
class GatedDelta : public torch::nn::Module {
 public:
  explicit GatedDelta(const GatedDeltaOptions& options);

  // x: [B, L, width] -> the same.
  at::Tensor forward(const at::Tensor& x, LinearState* state = nullptr) const;

 private:
  GatedDeltaOptions options_;
  std::shared_ptr<Linear> q_, k_, v_, beta_, decay_, gate_, out_;
  std::shared_ptr<Norm> norm_;
};

}  // namespace regard::layer
