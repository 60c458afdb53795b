#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace regard::bench {

// A picture (SVG) of rows of the attention benchmark under the machine's two limits: arithmetic intensity
// (operations over the bytes that must move at least: inputs and results, once) against GFLOP/s, both
// logarithmic. The limits are the medians of what was measured beside the rows.
std::string roofline_svg(const std::vector<nlohmann::ordered_json>& rows);

}  // namespace regard::bench
