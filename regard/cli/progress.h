#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace regard::cli {

// Progress on standard error: a bar with rate and time left on a terminal, a plain line every few seconds
// elsewhere, nothing at all for work that is done within a second.
class Progress {
 public:
  // what: "reading"; unit: "tokens".
  Progress(std::string what, std::string unit);
  ~Progress();  // removes the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, int64_t all);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  std::string unit_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace regard::cli
