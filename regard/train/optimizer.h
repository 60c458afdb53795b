#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "regard/train/parameters.h"

namespace regard::train {

struct OptimizerOptions {
  enum class Kind : uint8_t { adamw, adam, sgd };
  Kind kind = Kind::adamw;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;  // adamw: of matrices only; vectors (norms, biases) do not decay
  double momentum = 0.0;      // sgd
};

// Throws std::invalid_argument naming the known ones.
OptimizerOptions::Kind optimizer_named(const std::string& name);

// Adam, AdamW and SGD over named parameters (as torch.optim's, but in one pass over memory), with a state
// that can be kept in a file.
class Optimizer {
 public:
  Optimizer(const OptimizerOptions& options, const std::vector<Parameters::Named>& parameters);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void zero_gradients();
  // The norm of all gradients together; where it is above `limit` (> 0), the next step takes them scaled down
  // to it.
  double clip(double limit);
  void step(double rate);

  // What it remembers: "<parameter>/exp_avg" and the like, each parameter's step count among them (int64, one
  // number). A parameter that has not been stepped yet has none.
  std::vector<Parameters::Named> state() const;
  // Throws std::invalid_argument naming what is missing or of another shape.
  void restore(const std::vector<Parameters::Named>& state);

 private:
  struct Slot;
  void step_plainly(Slot& slot, double rate) const;

  OptimizerOptions options_;
  std::vector<Slot> slots_;
  double scale_ = 1;  // of gradients, by clip()
};

}  // namespace regard::train
