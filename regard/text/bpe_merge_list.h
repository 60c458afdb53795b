// The list of merges of a BPE file, checked.
#pragma once

#include <cstddef>
#include <string_view>

#include "regard/text/bpe_merges.h"
#include "regard/text/vocabulary.h"

namespace regard::text {

// Adds merge `number` of the list (from 0). Throws io::Error naming the number: an empty part, a part or the
// joined piece that is not in the vocabulary, a pair given twice.
void add_merge(std::string_view left, std::string_view right, size_t number, const Vocabulary& vocabulary,
               BpeMerges& merges);
// The same, written as "left right".
void add_written_merge(std::string_view written, size_t number, const Vocabulary& vocabulary,
                       BpeMerges& merges);

}  // namespace regard::text
