#pragma once

#include <string>

#include "regard/io/json.h"

namespace regard::text {

// What every tokenizer.json made here begins with: the special tokens, and </s> behind a text.
io::Json vocabulary_json();

// A whole tokenizer.json of a Unigram model from its pieces, [[piece, log-probability], ...], of which the
// first four are the special tokens. Spaces part words, runs of them count as one.
std::string unigram_json(const io::Json& pieces, bool byte_fallback);

}  // namespace regard::text
