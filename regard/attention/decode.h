#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regard/attention/cache.h"
#include "regard/attention/observe.h"
#include "regard/attention/spec.h"
#include "regard/kernel/parallel.h"

namespace regard::attention {

// Attention of the last Lq positions of some sequences over all that the cache holds of each, after append():
// one new token, several, or a chunk of a prompt. Of a sequence of n positions, row i stands at position
// i + n - Lq and sees no later one; spec.mask, with Align::bottom_right, and the cache's window say what else
// it does not see. A row before the sequence's beginning sees nothing.
//
// operands: q [B, Hq, Lq, Dk] with B = sequences.size(), out [B, Hq, Lq, Dv], and if wanted lse, slopes,
// sinks, a bias and the data of masks. What has an axis of keys has N of them, the length of the longest
// sequence: column j is position j of each entry, and columns from an entry's own length on are not read.
// Keys and values come from the cache, and dropout has no use without a backward, which caches do not have:
// both are refused. Bits do not depend on the number of workers, nor on where pages lie; with
// spec.row_invariant, in a cache without a window, nor on the chunks. With a bias or data of a mask scratch
// grows with N, without them with what is held. Throws std::invalid_argument for anything else, and for
// unknown sequences.
void decode(const Spec& spec, const Operands& operands, const KvCache& cache,
            std::span<const int64_t> sequences, kernel::Parallel& parallel = kernel::default_parallel());

// observe() of what decode() computes, with the same operands; operands.out may be absent. Keys are counted
// from each sequence's beginning, Lk = N; what the window has dropped was seen by no row.
Observation observe(const Observe& what, const Spec& spec, const Operands& operands, const KvCache& cache,
                    std::span<const int64_t> sequences,
                    kernel::Parallel& parallel = kernel::default_parallel());

// weights() and logits() of what decode() computes: any tile of one entry of the batch and query head, keys
// [key, key + keys) within [0, N). lse as decode() returned it.
std::vector<float> weights(const Spec& spec, const Operands& operands, const KvCache& cache,
                           std::span<const int64_t> sequences, View<const float> lse, int64_t batch,
                           int64_t head, int64_t row, int64_t rows, int64_t key, int64_t keys);
std::vector<float> logits(const Spec& spec, const Operands& operands, const KvCache& cache,
                          std::span<const int64_t> sequences, int64_t batch, int64_t head, int64_t row,
                          int64_t rows, int64_t key, int64_t keys);

}  // namespace regard::attention
