#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace regard::train {

// Label smoothing (Szegedy et al. 2016): the target is not one class but a distribution. Two are in use.
enum class Smoothing : uint8_t {
  torch,     // 1 - s on the right class, and s spread over all V classes, the right one too (libtorch)
  annotated  // 1 - s on the right class, s / (V - 2) on each other one but padding, which gets 0; the loss is
             // the Kullback-Leibler divergence, 0 where the model gives just that (Harvard's "The Annotated
             // Transformer")
};
// Throws std::invalid_argument naming the known ones.
Smoothing smoothing_named(const std::string& name);

// The mean over all rows, in nats. logits: [N, V]; targets: [N] int64, none of them `pad`; share: s, in
// [0, 1). With s = 0 both are the cross-entropy.
at::Tensor smoothed_loss(const at::Tensor& logits, const at::Tensor& targets, double share,
                         Smoothing smoothing, int64_t pad);

}  // namespace regard::train
