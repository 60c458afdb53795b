#pragma once

#include "regard/lab/experiment.h"

// The experiments themselves, one file each; experiments.cc says what they are about.
namespace regard::lab {

Result measure_scores(const Options& options);
Result measure_scaling(const Options& options);
Result measure_softmax(const Options& options);
Result measure_dispersion(const Options& options);
Result measure_projections(const Options& options);
Result measure_path(const Options& options);
Result measure_length(const Options& options);
Result measure_mixture(const Options& options);
Result measure_parameters(const Options& options);
Result measure_cache(const Options& options);
Result measure_masks(const Options& options);
Result measure_layout(const Options& options);
Result measure_heads(const Options& options);
Result measure_warmup(const Options& options);
Result measure_diversity(const Options& options);
Result measure_frozen(const Options& options);

}  // namespace regard::lab
