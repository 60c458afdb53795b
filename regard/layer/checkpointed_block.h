#pragma once

#include <memory>

#include "regard/layer/block.h"

namespace regard::layer {

// block->forward(x, layer, pass), computed again in the backward (checkpoint.h).
at::Tensor checkpointed(const std::shared_ptr<const Block>& block, const at::Tensor& x, int64_t layer,
                        const Pass& pass);

}  // namespace regard::layer
