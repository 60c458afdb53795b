#pragma once

namespace regard::cli {

// For programs that train: a step asks for the same tens of megabytes as the one before, and giving them back
// and taking them anew costs the kernel's time for every page.
void keep_memory();

}  // namespace regard::cli
