#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "regard/train/parameters.h"

namespace regard::train {

// How good a model is on text it has not learned from.
struct Validation {
  double loss = 0;           // nats per token
  double bits_per_byte = 0;  // of the text; for a text in ASCII, per character
  int64_t tokens = 0;
};

// What a loop (loop.h) trains: it knows the model and the data, the loop knows neither.
class Task {
 public:
  virtual ~Task() = default;

  virtual const std::vector<Parameters::Named>& parameters() const = 0;
  // The mean loss of pass 0, 1, ... (a step makes `accumulate` of them), with its graph. The same pass gives
  // the same loss whenever it is asked.
  virtual at::Tensor loss(int64_t pass) = 0;
  virtual int64_t tokens_per_pass() const = 0;
  // None where there is nothing to validate on.
  virtual std::optional<Validation> validate() = 0;
  // The model as other programs and `--model FOLDER` read it.
  virtual void save(const std::filesystem::path& folder) const = 0;
  // After a loss that is no number: where the first such value appears in this pass, such as "layer 3".
  virtual std::string find_not_a_number(int64_t pass) = 0;
};

}  // namespace regard::train
