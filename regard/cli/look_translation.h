#pragma once

#include <string>

#include "regard/cli/look_options.h"

namespace regard::cli {

// `look` at a translator: one translation of the text, with the maps of encoder, decoder and cross-attention
// of one layer beside each other and the entropy of every head; all numbers with --json.
void look_at_translator(const Look& options, const std::string& text);

}  // namespace regard::cli
