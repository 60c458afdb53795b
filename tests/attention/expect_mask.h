#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "regard/attention/bound_mask.h"

namespace regard::testing {

// Whether row i sees key j.
using Sees = std::function<bool(int64_t batch, int64_t head, int64_t i, int64_t j)>;

// Spans and bits of all blocks of `rows` rows against a definition, pair by pair: bits are equal, spans are
// sorted, disjoint, hold all that is visible, and full only where everything is.
::testing::AssertionResult is_mask(const attention::BoundMask& bound, int64_t batches, int64_t heads,
                                   int64_t rows, const Sees& sees);

}  // namespace regard::testing
