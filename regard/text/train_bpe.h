#pragma once

#include <span>
#include <string>

#include "regard/text/train_vocabulary.h"

namespace regard::text {

// Byte-level BPE as the text of a tokenizer.json: 256 bytes, then the most frequent pair of neighbours again
// and again, within GPT-2's words (pre_split.h). Of pairs that are equally frequent the one whose bytes come
// first in order is taken; pairs that occur once are not. The ids are those of train_vocabulary.h, then the
// bytes, then the merges in their order.
std::string train_byte_bpe(std::span<const std::string> sentences, int64_t size);

}  // namespace regard::text
