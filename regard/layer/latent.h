#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "regard/layer/attention.h"
#include "regard/layer/basic.h"
#include "regard/layer/options.h"
#include "regard/layer/rope.h"

namespace regard::layer {

// Multi-head latent attention, causal (DeepSeek-V2, arXiv 2405.04434, section 2.1): only the latent of rank
// numbers and the rotated key of a position are kept. attention::mla() is its decoder over caches of any
// type; this is the module that trains.
class LatentAttention final : public SelfAttention {
 public:
  // naive makes keys and values of all heads from the latents; absorbed moves the key's projection to the
  // query's side and lets all heads attend to the latents themselves. Equal up to rounding: naive for many
  // queries, absorbed for few.
  enum class Path : uint8_t { naive, absorbed };

  explicit LatentAttention(const LatentOptions& options);

  // x: [B, L, width] -> the same; table: of x's positions. latents, if given, is the cache: [B, earlier
  // positions, rank + rope] or undefined, and grows by L.
  at::Tensor forward(const at::Tensor& x, const RopeTable& table, Path path = Path::naive,
                     at::Tensor* latents = nullptr) const;

  // In a block: naive over a whole text, absorbed over the context's cache, which keeps rank + rope numbers
  // of a position as its key (one head) and the rank ones again as its value. pass.rope: of `rope` numbers.
  at::Tensor forward(const at::Tensor& x, int64_t layer, const Pass& pass) const override;

 private:
  struct Projected {
    at::Tensor plain_q, turned_q;  // [B, L, H, nope], [B, L, H, rope]
    at::Tensor latents;            // [B, L, rank + rope], normed and turned
  };
  Projected project(const at::Tensor& x, const RopeTable& table) const;
  attention::Spec spec() const;
  // [H, nope + value, rank]
  at::Tensor up_by_head() const;
  struct Naive {
    at::Tensor q, k, v;  // [B, H, L, ...]
  };
  Naive naive(const Projected& from, const at::Tensor& latents) const;
  at::Tensor absorb(const Projected& from) const;      // [B, H, L, rank + rope]
  at::Tensor expand(const at::Tensor& weighed) const;  // [B, H, L, rank] -> [B, H, L, value]
  at::Tensor join(const at::Tensor& mixed) const;      // [B, H, L, value] -> [B, L, width]

  LatentOptions options_;
  std::shared_ptr<Linear> query_down_, query_up_, down_, up_, out_;
  std::shared_ptr<Norm> query_norm_, norm_;
};

}  // namespace regard::layer
