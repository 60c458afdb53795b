#pragma once

#include <span>
#include <string>

#include "regard/text/train_vocabulary.h"

namespace regard::text {

// SentencePiece's own model file (a protocol buffer) for a Unigram vocabulary with the ids of
// train_vocabulary.h. Throws std::invalid_argument with SentencePiece's words.
std::string train_sentencepiece(std::span<const std::string> sentences, const VocabularyOptions& options);
// Such a model as the text of a tokenizer.json.
std::string sentencepiece_to_json(const std::string& model, bool byte_fallback);

}  // namespace regard::text
