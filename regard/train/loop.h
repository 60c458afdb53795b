#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "regard/train/recipe.h"
#include "regard/train/task.h"

namespace regard::train {

// One step, as it is told.
struct StepReport {
  int64_t step = 0;  // steps done, this one included
  int64_t steps = 0;
  double loss = 0;
  double rate = 0;
  double gradient_norm = 0;  // before it was clipped
  double seconds = 0;        // of this step
  int64_t tokens = 0;        // of this step
};

// Who listens to a training. All may be empty.
struct Listener {
  std::function<void(const StepReport&)> step;
  std::function<void(int64_t step, const Validation&, bool best)> validation;
  std::function<void(const std::filesystem::path&)> saved;
  std::function<void(int64_t step, const std::string&)>
      alarm;                   // heads that learn nothing, and the likely cause
  std::function<bool()> stop;  // asked after each step: save, and leave
};

enum class Ending : uint8_t { finished, stopped, out_of_patience };

struct Outcome {
  Ending ending = Ending::finished;
  int64_t step = 0;
  std::optional<double> best;  // of validations, by recipe.train.best
  int64_t best_step = 0;
};

// Trains until recipe.train.steps, from the newest checkpoint of `folder` if there is one: a training that
// was killed at any moment and goes on ends with the same bits as one that never stopped. In the folder:
// checkpoints, the best model so far (without validation: the last one), log.csv, validation.csv,
// heads.csv, and the same numbers as an event file for TensorBoard.
//
// A checkpoint is written once the gradients of the step after it are known to be finite, so that with a
// lower rate, a longer warm-up or a lower clip the training gets past what ended it.
//
// Throws std::invalid_argument where the folder's checkpoint is of another recipe (only train.steps,
// save_every, keep, patience, rate, warmup and clip may differ); std::runtime_error where the loss or a
// gradient is not finite, naming step, pass and place (not_finite.h); io::Error for the disk.
Outcome train(Task& task, const Recipe& recipe, const std::filesystem::path& folder,
              const Listener& listener = {});

}  // namespace regard::train
