// Canonical composition that keeps track of where things come from.
#pragma once

#include <optional>
#include <string_view>

#include "regard/text/aligned_text.h"

namespace regard::text {

// NFC of a valid text that begins at byte `base` of the whole; nothing where the text is in NFC already. What
// changes is mapped by characters as a reader sees them: composition never reaches across two of those.
std::optional<AlignedText> aligned_nfc(std::string_view text, size_t base);

}  // namespace regard::text
