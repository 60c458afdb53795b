#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace regard::layer {

// Part of a model that is computed twice: now without keeping what its gradients need, and again in the
// backward, from its inputs alone (Chen et al. 2016, arXiv 1604.06174): memory for a second forward.
//
// run: inputs -> results, called once, with gradients off. again: the same computation with the same random
// numbers, called once in the backward; what it captures must live until then, and it must not touch what
// only one run may change (a cache, a counter, a recorder), nor what has a graph beside its inputs. The
// gradients of the inputs and of all parameters inside have the bits that they have without (where run() uses
// an input that others use too, all is summed up in another order). Where no input needs a gradient, run() is
// called as it is. A second derivative throws.
using Recomputed = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;
std::vector<at::Tensor> checkpoint(const std::vector<at::Tensor>& inputs, const Recomputed& run,
                                   Recomputed again);

}  // namespace regard::layer
