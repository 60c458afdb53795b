#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "regard/attention/cache.h"
#include "regard/attention/spec.h"
#include "regard/kernel/parallel.h"

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): a position keeps one latent c of
// `rank` numbers and one rotated key r of `rope` numbers for all heads. Head h has keys (W_UK c, r) and
// values W_UV c. Two ways to the same result:
//   naive:    keys and values are made from the latents, then ordinary multi-head attention;
//   absorbed: q (W_UK c) = (W_UK^T q) c: queries are projected instead, all heads attend to the latents
//             themselves (multi-query attention with Dk = rank + rope, Dv = rank), and W_UV comes last.
namespace regard::attention {

struct MlaWeights {
  View<const float> w_uk;  // [1, H, nope, rank]
  View<const float> w_uv;  // [1, H, value, rank]; features of both are adjacent
  int64_t rope = 0;        // numbers of a rotated key; may be 0

  int64_t heads() const { return w_uk.size[1]; }
  int64_t nope() const { return w_uk.size[2]; }
  int64_t rank() const { return w_uk.size[3]; }
  int64_t value() const { return w_uv.size[2]; }
};

enum class MlaPath : uint8_t { naive, absorbed };

// The one with fewer multiplications for so many queries and keys of a batch entry: absorbed for a few
// queries, naive where their number pays for making keys and values.
MlaPath choose_mla_path(const MlaWeights& weights, int64_t queries, int64_t keys);

// operands: q [B, H, Lq, nope + rope], the rotated part last; k: the latents and rotated keys [B, 1, Lk, rank
// + rope], no v; out [B, H, Lq, value]; all f32. The rest as in attention(); the default scale is 1 /
// sqrt(nope + rope); with spec.row_invariant the path is the absorbed one unless it is named. Both paths are
// within the error bound of each other. Scratch: the naive path makes keys and values of all heads, the
// absorbed one B H Lq (2 rank + rope) floats. Throws std::invalid_argument.
void mla(const Spec& spec, const MlaWeights& weights, const Operands& operands,
         std::optional<MlaPath> path = std::nullopt, kernel::Parallel& parallel = kernel::default_parallel());

// The same over latents in a cache, as decode(): operands without k. The cache has one head, key_size rank +
// rope, value_size rank and values_in_keys; of any type. Sequences whose window has dropped positions take
// the absorbed path.
void mla_decode(const Spec& spec, const MlaWeights& weights, const Operands& operands, const KvCache& cache,
                std::span<const int64_t> sequences, std::optional<MlaPath> path = std::nullopt,
                kernel::Parallel& parallel = kernel::default_parallel());

}  // namespace regard::attention
