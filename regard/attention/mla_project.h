#pragma once

#include <cstdint>

#include "regard/kernel/parallel.h"
#include "regard/kernel/view.h"

// The projections of latent attention: plain float32 products, for this room has no matrix library below it.
namespace regard::attention {

// out(b, h, i, :) = weights(0, h, :, :) in(b, h, i, :): weights [1, H, N, M], in [B, H or 1, L, M or more
// features, of which the first M are read], out [B, H, L, N or more, of which the first N are written].
void project(const kernel::View<const float>& weights, const kernel::View<const float>& in,
             const kernel::View<float>& out, kernel::Parallel& parallel);

// out(b, h, i, :) = weights(0, h, :, :)^T in(b, h, i, :): in has N, out M features.
void project_transposed(const kernel::View<const float>& weights, const kernel::View<const float>& in,
                        const kernel::View<float>& out, kernel::Parallel& parallel);

}  // namespace regard::attention
