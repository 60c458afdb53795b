#pragma once

#include <string>
#include <vector>

namespace regard::kernel {

// Instruction sets that this build holds kernels for, best first ("AVX3", "AVX2", "NEON", ...).
std::vector<std::string> compiled_targets();

// Those of them that this machine can run.
std::vector<std::string> runnable_targets();

// The one in use: the best runnable one, or what REGARD_ISA names (an unknown or unrunnable name throws
// std::invalid_argument that lists the runnable ones). A target that not every run of the tests covers
// (AVX-512) is the default only after its answers to a small problem were found right.
std::string active_target();

// Selects a target for this process (tests, benchmarks); empty: back to the default. Throws like
// active_target().
void select_target(const std::string& name);

}  // namespace regard::kernel
