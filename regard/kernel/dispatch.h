#pragma once

#include "regard/kernel/hwy_config.h"

#include <cstddef>

#include <hwy/highway.h>

// Calls the variant of an HWY_EXPORTed function for the target in use. Regard keeps its own choice, apart
// from Highway's process-wide one, so that forcing a target does not touch other users of Highway in the
// process.
namespace regard::kernel {

// The target in use; throws std::invalid_argument when REGARD_ISA names one that cannot run.
const hwy::ChosenTarget& chosen_target();

}  // namespace regard::kernel

#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
#define REGARD_DISPATCH(FUNCTION) (*HWY_DISPATCH_TABLE(FUNCTION)[0])
#else
#define REGARD_DISPATCH(FUNCTION) \
  (*HWY_DISPATCH_TABLE(FUNCTION)[::regard::kernel::chosen_target().GetIndex()])
#endif
