#pragma once

namespace regard::cli {

// From here on the first Ctrl-C (or SIGTERM) only sets a flag, which long work polls; the second one ends the
// program.
void catch_interrupts();
bool interrupted();

// Throws std::runtime_error("interrupted") once the flag is set.
void stop_if_interrupted();

}  // namespace regard::cli
