#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace regard::bench {

// How the scratch of each form grows: bytes that its plan asks for at 4k, 8k, 16k and 32k queries and keys
// (B=1, H=8, D=64, two workers), and the exponent fitted to them: 1 is linear, 2 would be a square. Columns:
// op, mask, Lq (list), extra_bytes (list), slope.
std::vector<nlohmann::ordered_json> memory_bench();

}  // namespace regard::bench
