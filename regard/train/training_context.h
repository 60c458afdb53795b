#pragma once

#include <cstdint>

#include "regard/layer/context.h"
#include "regard/train/recipe.h"
#include "regard/train/shuffle.h"

namespace regard::train {

// Streams of a seed from here on are of dropout, far from those of the epochs.
inline constexpr uint64_t kDropoutStream = uint64_t{1} << 62;

// What a pass of training carries: which numbers it drops is a function of the recipe's seed and `stream`.
inline layer::Context training_context(const TrainRecipe& train, uint64_t stream) {
  layer::Context context;
  context.training = true;
  context.checkpoint_layers = train.checkpoint_layers;
  context.dropout_seed = generator_of(train.seed, stream)();
  return context;
}

}  // namespace regard::train
