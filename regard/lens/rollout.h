// Attention rollout (Abnar and Zuidema, 2020): where a position's content can have come from once the layers
// are chained. Each layer counts as 0.5 A + 0.5 I, A the mean over its heads and I the residual connection.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/lens/recording.h"

namespace regard::lens {

// Row `position` of the product over all layers: [tokens], sums to 1. Goes through the layers from the last
// to the first with one vector, so it needs O(tokens) memory, and the time of all weights once. Throws
// std::invalid_argument when not every layer of the model was kept.
std::vector<float> rollout_row(const Recording& recording, int64_t position);

// The whole product, [tokens, tokens]. Throws std::invalid_argument above kRolloutLimit tokens: it is one of
// the few things here that are L x L.
inline constexpr int64_t kRolloutLimit = 1024;
std::vector<float> rollout(const Recording& recording);

}  // namespace regard::lens
