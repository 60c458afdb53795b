#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "regard/attention/backward.h"
#include "regard/attention/spec.h"
#include "regard/kernel/parallel.h"

// Hashed attention of the Reformer (Kitaev et al. 2020, arXiv 2001.04451, section 2): queries and keys are
// one, k = q / |q|; a row looks at keys of its own hash bucket only. O(rounds L chunk).
namespace regard::attention {

struct LshOptions {
  int64_t buckets = 16;  // even, or 1: no hashing
  int64_t rounds = 4;    // hash functions; what any of them finds counts, once for each that finds it
  int64_t chunk = 64;    // sorted rows look into their own chunk and the one before it (no wrap-around)
  bool causal = false;   // only keys before the row
  uint64_t seed = 0;     // of the hash functions, drawn alike on every machine
  std::optional<double> scale;  // default 1 / sqrt(Dk)
};

// buckets[(b * H + h) * L + i] of one round: argmax of [x R; -x R], R [Dk, buckets / 2] normal (section 2,
// "Locality sensitive hashing"; Andoni et al. 2015). Equal or opposite to nothing but directions: x and c x
// (c > 0) hash alike.
std::vector<int32_t> lsh_buckets(const View<const float>& x, int64_t buckets, uint64_t seed, int64_t round);

// Fills operands.out (float32) and operands.lse, if given. operands.q and v: float32 [B, H, L, Dk] and [B, H,
// L, Dv]; operands.k is not read. A row does not see itself (its own key would always win) unless it sees
// nothing else: then out is its own value and lse -inf. Rounds are merged by their LSE. Throws
// std::invalid_argument on a malformed call.
void lsh_attention(const LshOptions& options, const Operands& operands,
                   kernel::Parallel& parallel = kernel::default_parallel());

// Gradients of q (through both its roles) and v, float32; the hashes are constants. operands.out and
// operands.lse as lsh_attention() made them.
void lsh_attention_backward(const LshOptions& options, const Operands& operands, const Arriving& arriving,
                            const Gradients& gradients,
                            kernel::Parallel& parallel = kernel::default_parallel());

}  // namespace regard::attention
