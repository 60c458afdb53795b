#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace regard::layer {

// Part of a model that is computed twice: now without keeping what its gradients need, and again in the
// backward, from x alone (Chen et al. 2016, arXiv 1604.06174): memory for a second forward.
//
// run: x -> results, called once, with gradients off. again: the same computation with the same random
// numbers, called once in the backward; what it captures must live until then, and it must not touch what
// only one run may change (a cache, a counter, a recorder). The gradients of x and of all parameters inside
// have the bits that they have without. Where x needs no gradient, run() is called as it is. A second
// derivative throws.
using Recomputed = std::function<std::vector<at::Tensor>(const at::Tensor& x)>;
std::vector<at::Tensor> checkpoint(const at::Tensor& x, const Recomputed& run, Recomputed again);

}  // namespace regard::layer
