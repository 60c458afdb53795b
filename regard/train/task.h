#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/lens/head_watch.h"
#include "regard/train/parameters.h"

namespace regard::train {

// How good a model is on text it has not learned from.
struct Validation {
  double loss = 0;           // nats per token
  double bits_per_byte = 0;  // of the text; for a text in ASCII, per character
  int64_t tokens = 0;
  // Of texts that were written by greedy decoding, where this validation did that.
  std::optional<double> bleu, chrf;  // 0 to 100
  std::optional<double> accuracy;    // the share of texts that are right as a whole
};

// What decides which model is the best.
enum class Metric : uint8_t { loss, bleu, chrf, accuracy };
// Throws std::invalid_argument naming the known ones.
Metric metric_named(const std::string& name);
const char* metric_name(Metric metric);
// None where this validation did not measure it.
std::optional<double> value_of(const Validation& validation, Metric metric);
// Whether `value` is better than `other`; what is no number is worse than any.
bool better(Metric metric, double value, double other);

// What heads do on one batch, and how their layers began.
struct Heads {
  std::vector<lens::HeadState> states;
  double deviation = 0;         // of the query and key matrices at first
  double xavier_deviation = 0;  // Glorot and Bengio's for them
  bool post_norm = false;
};
// Of a model of this width, whose matrices began so.
Heads heads_of(const lens::HeadWatch& watch, const Initialisation& start, int64_t width);

// What a loop (loop.h) trains: it knows the model and the data, the loop knows neither.
class Task {
 public:
  virtual ~Task() = default;

  virtual const std::vector<Parameters::Named>& parameters() const = 0;
  // The mean loss of pass 0, 1, ... (a step makes `accumulate` of them), with its graph. The same pass gives
  // the same loss whenever it is asked.
  virtual at::Tensor loss(int64_t pass) = 0;
  // How many tokens that loss is the mean of: what it weighs among the passes of its step.
  virtual int64_t tokens(int64_t pass) = 0;
  // After `step` steps. None where there is nothing to validate on.
  virtual std::optional<Validation> validate(int64_t step) = 0;
  // The model as other programs and `--model FOLDER` read it.
  virtual void save(const std::filesystem::path& folder) const = 0;
  // Takes the numbers of a model in a folder instead of a random start. Throws std::invalid_argument where
  // this kind of model does not.
  virtual void begin_from(const std::filesystem::path& /*folder*/) {
    throw std::invalid_argument("only a language model begins from another model");
  }
  // Of the model as it is, on a batch that is always the same. None where nothing attends.
  virtual Heads heads() { return {}; }
};

}  // namespace regard::train
