#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/train/recipe.h"

namespace regard::train {

// The config.json of a decoder by a recipe, in the layout of the published models that it equals: Llama,
// Mistral (a window), Mixtral (a mixture of experts), DeepSeek-V2 (latent attention); with a head that does
// not look at every token our own "regard_decoder", which is Llama's otherwise. counts: how often each token
// of the vocabulary occurs in the training text.
std::string decoder_config(const DecoderRecipe& model, const TrainRecipe& train,
                           const std::vector<int64_t>& counts);

}  // namespace regard::train
