#pragma once

#include <exception>

namespace regard::cli {

// Standard output takes nothing any more: a closed pipe (`| head`) or a full disk. The program says why at
// its end.
class OutputFailed : public std::exception {
 public:
  const char* what() const noexcept override { return "standard output failed"; }
};

// What was printed so far leaves now; verbs that print line by line stop here by OutputFailed rather than
// work for nobody.
void flush_output();

}  // namespace regard::cli
