#pragma once

#include <cstddef>

#include "regard/kernel/forward.h"

// The kernels behind forward() and weights_tile(), dispatched to the target in use. Operands as in forward.h.
namespace regard::kernel {

// ForwardTiling::Kind::prefill. workspace: PrefillLayout::bytes(parallel.workers()), aligned to 64. out and
// lse may not overlap the inputs. Lk == 0: every row is empty (out 0; lse -inf, or the sink).
void prefill(const Forward& problem, const ForwardTiling& tiling, std::byte* workspace, Parallel& parallel);

// ForwardTiling::Kind::decode. workspace: DecodeLayout::bytes(parallel.workers()), aligned to 64. k and v
// need feature stride 1 and are read in place; otherwise as prefill().
void decode(const Forward& problem, const ForwardTiling& tiling, std::byte* workspace, Parallel& parallel);

}  // namespace regard::kernel
