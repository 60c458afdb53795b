#pragma once

#include <string>

namespace regard::train {

// A tokenizer.json (byte-level BPE without merges) in which each of the 256 bytes is a token, so that a model
// over bytes is a model like any other. Ids follow the byte values.
std::string byte_tokenizer_json();

}  // namespace regard::train
