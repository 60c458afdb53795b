// The first cut of byte-level BPE: a text into pieces that no token crosses. In model files these are regular
// expressions; each known one has a scanner here, so that time is linear whatever the text, and others are
// refused by name instead of being run. Letters and digits are those of
// utf8proc's Unicode.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "regard/text/encoding.h"

namespace regard::text {

enum class PreSplit {
  gpt2,    // contractions, letters, digits, the rest; each with one space in front
  smollm,  // each digit on its own first, then gpt2 between them
  llama3,  // contractions in any case, up to three digits, line breaks with what precedes them
  qwen2,   // llama3 with one digit at a time
};

// `text` is valid UTF-8. Calls piece(span) for consecutive spans that together are the whole text.
void pre_split(PreSplit kind, std::string_view text, const std::function<void(Span)>& piece);

// The split that a regular expression of a "Split" pre-tokeniser in tokenizer.json stands for, by exact text.
std::optional<PreSplit> known_split_regex(std::string_view regex);
// By its name in GGUF (tokenizer.ggml.pre): gpt-2, smollm, llama-bpe, qwen2.
std::optional<PreSplit> known_split_name(std::string_view name);

}  // namespace regard::text
