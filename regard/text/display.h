// Text in terminal cells: a wide character (Chinese, most emoji) takes two, a combining mark none.
#pragma once

#include <string>
#include <string_view>

namespace regard::text {

// Cells that `text` takes. Control characters count 0. Emoji sequences (ZWJ families, flags, skin tones,
// U+FE0F) count as the one wide picture that terminals draw. Bytes that are not UTF-8 count one each.
size_t display_width(std::string_view text);

// `text` where it fits into `width` cells, else its longest start that fits with an ellipsis behind ("…", or
// "~" in ASCII). Never cuts inside a character as a reader sees it. The result takes at most `width` cells.
std::string cut_to_width(std::string_view text, size_t width, bool ascii = false);

enum class Align { left, right, center };
// Cut and padded with spaces to exactly `width` cells.
std::string fit_to_width(std::string_view text, size_t width, Align align = Align::left, bool ascii = false);

// For terminals that are not UTF-8: accents are taken off, everything else beyond ASCII becomes "?" per cell;
// control characters become "?".
std::string to_ascii(std::string_view text);

}  // namespace regard::text
