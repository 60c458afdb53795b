// Running a model while its attention calls are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/lens/recording.h"
#include "regard/model/model.h"
#include "regard/text/encoding.h"

namespace regard::lens {

struct RecordOptions {
  std::vector<int64_t> layers;  // empty: all; the model stops after the last one that is wanted
  Precision precision = Precision::f32;
  bool keep_values = false;  // v, for trace() and files
  bool keep_inputs = false;  // x, for trace()
  // (layers done, layers in all) after each layer. May throw to stop.
  std::function<void(int64_t, int64_t)> progress;
};

// Tokens and words of an encoding, for people. `encoding` is of `text` alone (no pair).
std::vector<Token> describe_tokens(const text::Tokenizer& tokenizer, const text::Encoding& encoding,
                                   std::string_view text);
std::vector<Unit> describe_words(const text::Encoding& encoding, std::string_view text);

// Bytes that record() will hold for so many tokens.
int64_t recording_bytes(const model::Config& config, int64_t tokens, const RecordOptions& options);

// One pass over the text. Throws std::invalid_argument for a text without tokens, one that is longer than the
// model's positions, or a layer that the model does not have.
Recording record(const model::Loaded& loaded, const text::Encoding& encoding, std::string_view text,
                 const RecordOptions& options = {});

}  // namespace regard::lens
