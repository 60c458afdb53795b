#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/attention/problem.h"

namespace regard::testing {

// A random call over shapes around the tiles' edges, types, layouts, masks and options; the same for a seed.
Problem random_call(uint64_t seed);

// A random mask of the whole family, with its data: up to three alternatives of up to three parts.
void add_random_mask(Problem& problem, std::mt19937_64& random);

// What a property test runs: seeds 1 to count (REGARD_SEEDS at most), or the one that REGARD_SEED names.
std::vector<uint64_t> property_seeds(uint64_t count);

// For SCOPED_TRACE: the call, and the command that repeats it alone.
std::string describe(uint64_t seed, Problem& problem);

}  // namespace regard::testing
