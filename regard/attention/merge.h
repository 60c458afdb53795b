#pragma once

#include <span>

#include "regard/kernel/parallel.h"
#include "regard/kernel/view.h"

namespace regard::attention {

using kernel::View;

// What attention over some of a row's keys gave.
struct PartialResult {
  View<const float> out;  // [B, H, L, Dv], features adjacent
  View<const float> lse;  // [B, H, L, 1], without a sink
};

// Attention over all keys of the parts, from the results of each: lse = ln(sum of exp(lse_p)), out = sum of
// exp(lse_p - lse) out_p. A key in two parts counts twice. Order and grouping change rounding only. Throws
// std::invalid_argument without parts or when sizes differ.
//
// There is no backward of the merge because none is needed: each part's own backward(), given the merged out
// and lse in the place of its own, yields that part's share of all gradients, since the weights of the whole
// are exp(logit - lse).
void merge(std::span<const PartialResult> parts, View<float> out, View<float> lse,
           kernel::Parallel& parallel = kernel::default_parallel());

}  // namespace regard::attention
