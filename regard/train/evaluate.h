// How good a model is on a test set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/model/load_translator.h"
#include "regard/model/model.h"
#include "regard/train/answers.h"
#include "regard/train/parallel_text.h"
#include "regard/train/translation_score.h"

namespace regard::train {

struct TranslationQuality {
  int64_t texts = 0;
  double bleu = 0, chrf = 0;  // of what the model wrote; see translation_score.h
  double accuracy = 0;        // the share of texts that equal a reference
  double loss = 0;            // nats per token of the references, by teacher forcing
  int64_t tokens = 0;         // of the references, ends included
};

struct TranslationReport {
  TranslationQuality all;
  struct Bucket {
    int64_t shortest = 0, longest = 0;  // tokens of the source
    double mean = 0;                    // of its texts
    TranslationQuality quality;
  };
  std::vector<Bucket> by_length;  // those that hold a text
  std::vector<std::string> translations;
};

struct EvaluateOptions {
  int64_t beam = 1;
  double length_penalty = 0.6;
  BleuTokens bleu_tokens = BleuTokens::mteval_13a;
  std::vector<int64_t> longest = {5, 10, 15, 20, 30};       // of each bucket but the last, which is open
  std::function<void(int64_t done, int64_t all)> progress;  // texts translated; may throw
};

// Throws std::invalid_argument for a source or reference longer than the model takes and for no texts.
TranslationReport evaluate(model::LoadedTranslator& translator, const std::vector<TextPair>& texts,
                           const EvaluateOptions& options = {});

struct TextQuality {
  int64_t tokens = 0;  // predicted ones
  int64_t bytes = 0;   // of the text
  double loss = 0;     // nats per token
  double bits_per_byte = 0;
};

// A language model that was trained on a task, over texts of it. Throws std::invalid_argument for another
// vocabulary and for a text longer than the model takes.
AnswerQuality evaluate(const model::Loaded& loaded, const std::vector<TextPair>& texts);

// A language model over a text of any length: pieces of `length` tokens (0: what the model takes, at most
// 1,024), each of which sees only itself; the last token of one is the first of the next, so that every token
// but the text's first is predicted once. Throws std::invalid_argument for a model that continues no texts, a
// length that it does not take and a text of fewer than two tokens; text::InvalidUtf8.
TextQuality evaluate(const model::Loaded& loaded, std::string_view text, int64_t length = 0,
                     const std::function<void(int64_t done, int64_t all)>& progress = {});

}  // namespace regard::train
