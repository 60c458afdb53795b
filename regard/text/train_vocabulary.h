// Vocabularies learned from a text: a tokenizer.json that load_tokenizer() reads, and Hugging Face's loaders.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "regard/text/encoding.h"

namespace regard::text {

struct VocabularyOptions {
  enum class Kind : uint8_t {
    unigram,  // Kudo 2018, learned by SentencePiece: the pieces that make the text most probable
    bpe       // byte-level BPE (Sennrich et al. 2016 over bytes, with GPT-2's words): no text is unknown
  };
  Kind kind = Kind::unigram;
  int64_t size = 8000;              // pieces at most, special tokens included; a small text has fewer
  double character_coverage = 1.0;  // unigram: the share of the text's characters that get a piece
  bool byte_fallback = false;       // unigram: a character without a piece is written as its bytes
};

// The first ids of every vocabulary made here. encode() puts </s> behind a text.
inline constexpr TokenId kPadId = 0;      // <pad>
inline constexpr TokenId kUnknownId = 1;  // <unk>
inline constexpr TokenId kBosId = 2;      // <s>
inline constexpr TokenId kEosId = 3;      // </s>

// The same sentences and options give the same bytes. The text is taken as it is: no case folding, no
// normalisation. Throws InvalidUtf8, and std::invalid_argument for options out of range (a size too small for
// the characters of the text names what is needed) and for a text without a character.
std::string train_vocabulary(std::span<const std::string> sentences, const VocabularyOptions& options);

}  // namespace regard::text
