#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "regard/io/tensorboard.h"
#include "regard/train/loop.h"

namespace regard::train {

// log.csv (one line a step), validation.csv and heads.csv (one line a head and validation) in the folder of a
// training, and the same as an event file of TensorBoard. What was written after the
// checkpoint that a training goes on from is cut off first, so that no step stands there twice.
class StepLog {
 public:
  // step: steps done. Throws io::Error for the disk.
  StepLog(const std::filesystem::path& folder, int64_t step);
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  void step(const StepReport& report);
  void validation(int64_t step, const Validation& validation, bool best);
  void heads(int64_t step, const std::vector<lens::HeadState>& heads);
  void sync();  // to the disk

 private:
  void append(int descriptor, const std::filesystem::path& path, const std::string& line);

  std::filesystem::path steps_path_, validations_path_, heads_path_;
  int steps_ = -1;
  int validations_ = -1;
  int heads_ = -1;
  io::EventFile events_;
};

}  // namespace regard::train
