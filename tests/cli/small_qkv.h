// q, k and v of one small layer in an NPZ file: a look that needs no model.
#pragma once

#include <filesystem>

namespace regard::cli::testing {

// 2 heads, `tokens` positions, head size 8.
void write_small_qkv(const std::filesystem::path& path, int64_t tokens = 12);

}  // namespace regard::cli::testing
