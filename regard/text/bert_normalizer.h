// BERT's clean-up of a text, as the published Rust code does it: each code point on its own. Marks,
// punctuation and format characters are those of utf8proc's Unicode; the Rust code's tables are older (about
// Unicode 8), so with utf8proc 2.8 (Unicode 15) 568 code points that are newer fall differently, most of them
// rare marks.
#pragma once

#include <optional>
#include <string_view>

#include "regard/text/aligned_text.h"

namespace regard::text {

struct BertNormalizer {
  bool clean_text = true;             // control characters go, all white space becomes a space
  bool handle_chinese_chars = true;   // spaces around Chinese characters
  std::optional<bool> strip_accents;  // default: as lowercase
  bool lowercase = true;

  // `text` is valid UTF-8 and begins at byte `base` of the whole.
  AlignedText operator()(std::string_view text, size_t base) const;
};

}  // namespace regard::text
