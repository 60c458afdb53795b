#pragma once

#include <cstdint>
#include <span>

#include "regard/attention/cache.h"
#include "regard/attention/spec.h"
#include "regard/kernel/parallel.h"

namespace regard::attention {

// Attention of the last Lq positions of some sequences over all that the cache holds of each, after append():
// one new token, several, or a chunk of a prompt. Of a sequence of n positions, row i stands at position
// i + n - Lq and sees no later one; spec.mask, with Align::bottom_right, and the cache's window say what else
// it does not see. A row before the sequence's beginning sees nothing.
//
// operands: q [B, Hq, Lq, Dk] with B = sequences.size(), out [B, Hq, Lq, Dv], and if wanted lse, slopes and
// sinks; nothing else. Bits do not depend on the number of workers, nor on where pages lie; with
// spec.row_invariant, in a cache without a window, nor on the chunks. Throws std::invalid_argument for
// anything else, for masks that need data, dropout, and unknown sequences.
void decode(const Spec& spec, const Operands& operands, const KvCache& cache,
            std::span<const int64_t> sequences, kernel::Parallel& parallel = kernel::default_parallel());

}  // namespace regard::attention
