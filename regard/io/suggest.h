#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regard::io {

// The candidate nearest to a mistyped name by edit distance, or "" when none is near (more than a third of it
// differs).
std::string suggest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace regard::io
