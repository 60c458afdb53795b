// Bytes of a token as something that can be seen.
#pragma once

#include <string>
#include <string_view>

namespace regard::text {

// Line breaks, tabs and spaces at the edges as ↵ ⇥ ␣, other control and format characters as <U+200B>, a
// leading combining mark on a dotted circle, bytes that are no character as <E4>. `drop_space`: one leading
// space goes where something else follows it.
std::string visible(std::string_view bytes, bool drop_space);

}  // namespace regard::text
