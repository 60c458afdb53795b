// Runs the program as a user does: arguments in; output, messages and exit code out.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/lines.h"

namespace regard::cli::testing {

struct How {
  std::string input;  // of standard input
  std::vector<std::pair<std::string, std::string>>
      environment;       // beside what the test itself was started with
  std::string output;    // a file that standard output goes to, such as /dev/full
  int64_t columns = 0;   // > 0: standard output is a terminal so wide, which knows 256 colours
  double seconds = 300;  // after which it is killed
};

struct Outcome {
  int code = -1;  // the exit code; 128 and the signal where one ended it
  std::string out;
  std::string err;
};

// The locale is C.UTF-8. REGARD_* variables (but the cache's), NO_COLOR and the like are taken away.
Outcome run(const std::vector<std::string>& arguments, const How& how = {});
// A line for the shell, in which $REGARD is the program. The outcome is that of the shell (bash, pipefail).
Outcome shell(const std::string& line, const How& how = {});

// Whether `regard models` has a model at hand.
bool installed(const std::string& model);

// The sentences that begin with "regard: ", without the lines of progress that a slow machine shows.
std::vector<std::string> complaints(const Outcome& outcome);

}  // namespace regard::cli::testing

#define REGARD_NEEDS_MODEL(name)                                                             \
  if (!::regard::cli::testing::installed(name)) {                                            \
    GTEST_SKIP() << "model " << (name) << " is not installed: regard models get " << (name); \
  }                                                                                          \
  static_assert(true)
