#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/json.h"
#include "regard/model/translator.h"
#include "regard/model/weight_source.h"
#include "regard/text/tokenizer.h"

namespace regard::model {

// The translator that a config.json describes ("model_type": "rnn_translator" or "transformer_translator",
// translator_config.h), from a file or a training that begins. source: what errors call it. Throws io::Error.
std::unique_ptr<Translator> make_translator(const io::Json& config, const std::string& source,
                                            const WeightSource& weights);

// A translator with what is needed to use it on text.
struct LoadedTranslator {
  std::string name;  // as the user gave it
  std::string type;  // model_type
  std::unique_ptr<Translator> model;
  std::unique_ptr<text::Tokenizer> tokenizer;  // one vocabulary for both languages
  int64_t bos = 0, eos = 0, pad = 0;
  int64_t file_bytes = 0;
};

// Whether a folder (or a name that stands for one) holds a translator. Throws as load_translator() where
// there is no folder.
bool is_translator(const std::string& name_or_path);

// A folder with config.json, model.safetensors and tokenizer.json. Throws io::Error with one sentence.
LoadedTranslator load_translator(const std::string& name_or_path);

// A text as an encoder reads it: its tokens, without a tokenizer's own special ones, then eos. Throws
// text::InvalidUtf8.
std::vector<int64_t> source_ids(const text::Tokenizer& tokenizer, std::string_view text, int64_t eos);

// Right-padded to the longest; lengths undefined where all are of one. None may be empty.
Source pad_sources(const std::vector<std::vector<int64_t>>& ids, int64_t pad);

}  // namespace regard::model
