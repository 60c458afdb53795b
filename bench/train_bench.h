#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

namespace regard::bench {

// A training step (loss, gradients, clipping, AdamW) of a Llama-like decoder beside the same model in plain
// libtorch modules, at the same number of tokens for each length.
struct TrainCase {
  int64_t length = 256;
  bool checkpoint = false;  // ours recomputes each layer in the backward; the peer has no such thing
  int64_t layers = 4;
  int64_t width = 256;
  int64_t tokens = 2048;  // of a step
};

std::vector<TrainCase> train_cases(bool quick);

// Steps of both alternately for about `seconds` (three of each at least), the best of each: by processor time
// on one thread, by wall time on more. Columns beside the usual ones: ours_mbytes, peer_mbytes: the highest
// sum of tensors in a step above what stays (parameters and the optimiser's memory); loss_difference: of the
// first steps' losses, as a share.
nlohmann::ordered_json run_train_case(const TrainCase& c, double seconds, int threads);

}  // namespace regard::bench
