#pragma once

#include <string>

#include "regard/io/json.h"
#include "regard/text/train_vocabulary.h"

namespace regard::text {

// What every tokenizer.json made here begins with: the special tokens, and which of them encode() puts behind
// a text.
io::Json vocabulary_json(TokenId behind = kEosId);

// A whole tokenizer.json of a Unigram model from its pieces, [[piece, log-probability], ...], of which the
// first four are the special tokens. Spaces part words, runs of them count as one.
std::string unigram_json(const io::Json& pieces, bool byte_fallback, TokenId behind = kEosId);

}  // namespace regard::text
