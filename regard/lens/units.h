// Rows and columns for people: tokens, or the words they form. Keys of a word are summed, queries of a word
// averaged, so that rows still sum to 1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regard/lens/recording.h"
#include "regard/lens/report.h"

namespace regard::lens {

std::vector<Unit> token_units(const Recording& recording);

// Sums the weights of each unit's tokens: weights [tokens] -> out [units].
void merge_keys(std::span<const float> weights, std::span<const Unit> units, std::span<float> out);

// The row of one unit: keys summed, the unit's queries averaged.
std::vector<float> unit_row(const RecordedLayer& layer, int64_t head, std::span<const Unit> units,
                            int64_t unit);

// How much every unit gives to one unit: its tokens' columns summed, averaged over the tokens of each row's
// unit. [units]; reads one column only.
std::vector<float> unit_column(const RecordedLayer& layer, int64_t head, std::span<const Unit> units,
                               int64_t unit);

// A whole map in units, [units, units]: for pictures of short texts. Throws std::invalid_argument above
// kMapLimit units.
inline constexpr int64_t kMapLimit = 4096;
std::vector<float> unit_map(const RecordedLayer& layer, int64_t head, std::span<const Unit> units);

// Sets the weights of special tokens to 0 and rescales the row to sum to 1 (a row that looks at nothing else
// becomes 0). Returns the mass that was there.
float hide_special(std::span<float> row, std::span<const Unit> units);

// The unit that holds a token.
int64_t unit_of_token(std::span<const Unit> units, int64_t token);

}  // namespace regard::lens
