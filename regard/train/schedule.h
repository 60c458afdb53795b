#pragma once

#include <cstdint>
#include <string>

namespace regard::train {

// The learning rate of each step.
struct Schedule {
  enum class Kind : uint8_t {
    constant,      // rate
    linear,        // falls to final_share * rate at the last step
    cosine,        // the same along half a cosine (Loshchilov and Hutter 2017, without restarts)
    inverse_root,  // rate * sqrt(warmup / step)
    noam           // rate * width^-0.5 * min(step^-0.5, step * warmup^-1.5); Vaswani et al. 2017, section 5.3
  };
  Kind kind = Kind::cosine;
  double rate = 1e-3;        // the highest; of noam a factor, 1 in the paper
  int64_t warmup = 0;        // steps in which the rate rises from 0 along a line
  int64_t steps = 1;         // in all
  double final_share = 0.1;  // linear and cosine
  int64_t width = 512;       // noam: of the model

  // Of step 0, 1, ...; steps are counted from 1 inside, so that the first one learns too. Past `steps` the
  // last rate stays.
  double at(int64_t step) const;
};

// Throws std::invalid_argument naming the known ones.
Schedule::Kind schedule_named(const std::string& name);

}  // namespace regard::train
