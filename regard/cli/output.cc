#include "regard/cli/output.h"

#include <iostream>

namespace regard::cli {

void flush_output() {
  if (!std::cout.flush()) throw OutputFailed();
}

}  // namespace regard::cli
