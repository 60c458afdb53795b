// Prompts with answers for a language model: what a generated task is to it.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/model/model.h"
#include "regard/text/tokenizer.h"
#include "regard/train/parallel_text.h"
#include "regard/train/token_stream.h"

namespace regard::train {

// Each text is a document, "prompt <s> answer </s>" (the first reference), of which only the answer and its
// end are learned. Texts fill pieces of `length` tokens as they come; what is left of a piece is padding.
// The tokenizer is a word_vocabulary() that puts <s> behind a text. Throws std::invalid_argument for another
// one, a word that it does not know and a text longer than a piece.
TokenText answer_text(const text::Tokenizer& tokenizer, const std::vector<TextPair>& texts, int64_t length);

struct AnswerQuality {
  int64_t texts = 0;
  double accuracy = 0;  // the share whose whole answer is what greedy decoding writes
  double loss = 0;      // nats per token of the answers, ends included
  int64_t tokens = 0;
};

// Of an answer_text(), `batch` pieces at a time. pieces: at most so many; 0: all.
AnswerQuality answer_quality(model::Model& model, const TokenText& text, int64_t length, int64_t batch,
                             int64_t pieces = 0);

}  // namespace regard::train
