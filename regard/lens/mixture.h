// The line that explains attention best: a word's new vector is a mixture of all words' values,
// `it = 0.21 animal + 0.14 it + ...`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "regard/lens/report.h"

namespace regard::lens {

// Splits a row into its largest terms, its sinks and the rest. A sink is a special token, or, in a causal
// model, the first unit: where heads rest their weight when nothing fits. At most `terms` words are named,
// and none below `smallest`.
Mixture mixture(std::span<const float> row, std::span<const Unit> units, bool causal, int64_t terms = 5,
                float smallest = 0.01F);

bool is_sink(std::span<const Unit> units, int64_t unit, bool causal);

// The terms in hundredths, rounded so that what is printed sums to exactly 1.00: {terms..., sinks, rest}.
// Each number is its weight rounded to the nearest; the rest takes up the difference, and where it is too
// small the largest numbers do.
std::vector<int> hundredths(const Mixture& mixture);

}  // namespace regard::lens
