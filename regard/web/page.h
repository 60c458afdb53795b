// The page of `regard look --html`: one HTML file that shows a report and needs nothing else.
#pragma once

#include <cstddef>
#include <string>

#include "regard/lens/report.h"

namespace regard::web {

inline constexpr std::size_t kPageLimit = 25'000'000;  // bytes, at any length of the text

// The file's bytes, at most kPageLimit. Heads are carried in the report's order while there is room (in
// float32; in 16 bits where not even one fits otherwise); the others keep their block maps, and the page
// names the command that carries them. Text and tokens are written as data, never as HTML.
// Throws std::invalid_argument where the tokens alone are too many for a page.
std::string page(const lens::Report& report);

// Two texts beside each other, sharing the space.
std::string page(const lens::Report& first, const lens::Report& second);

}  // namespace regard::web
