#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace regard::model {

// The key or value projection of fewer heads: [heads * size, columns] -> [wanted * size, columns], each head
// the mean of those whose queries it will serve (Ainslie et al. 2023, arXiv 2305.13245, section 2.1). What
// follows is some training: the paper's is 5 % of the first. Throws std::invalid_argument where heads is no
// multiple of wanted or does not divide the rows.
at::Tensor pool_heads(const at::Tensor& projection, int64_t heads, int64_t wanted);

}  // namespace regard::model
