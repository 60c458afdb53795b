#include "regard/text/train_vocabulary.h"

#include <algorithm>
#include <stdexcept>

#include "regard/text/tokenizer.h"
#include "regard/text/train_bpe.h"
#include "regard/text/train_sentencepiece.h"
#include "regard/text/utf8.h"
#include "regard/text/vocabulary_json.h"

namespace regard::text {

io::Json vocabulary_json(TokenId behind) {
  io::Json added = io::Json::array();
  constexpr const char* kNames[] = {"<pad>", "<unk>", "<s>", "</s>"};
  for (TokenId id = kPadId; id <= kEosId; ++id) {
    added.push_back({{"id", id},
                     {"content", kNames[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const auto sequence = [](const char* id, int type) {
    return io::Json{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  const std::string name = kNames[behind];
  const io::Json end = {{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
  const io::Json ids = {{name, {{"id", name}, {"ids", {behind}}, {"tokens", {name}}}}};
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {sequence("A", 0), end}},
            {"pair", {sequence("A", 0), end, sequence("B", 0), end}},
            {"special_tokens", ids}}}};
}

std::string train_vocabulary(std::span<const std::string> sentences, const VocabularyOptions& options) {
  const bool bpe = options.kind == VocabularyOptions::Kind::bpe;
  const int64_t least = bpe ? 4 + 256 : options.byte_fallback ? 4 + 256 + 1 : 5;
  if (options.size < least || options.size > 1 << 20) {
    throw std::invalid_argument("the size of the vocabulary is " + std::to_string(options.size) +
                                "; allowed is " + std::to_string(least) + " to " + std::to_string(1 << 20));
  }
  if (!(options.character_coverage > 0 && options.character_coverage <= 1)) {
    throw std::invalid_argument("the coverage of characters is " +
                                std::to_string(options.character_coverage) + "; allowed is above 0 to 1");
  }
  bool empty = true;
  for (const std::string& sentence : sentences) {
    if (const auto offset = find_invalid_utf8(sentence)) throw InvalidUtf8(*offset);
    empty = empty && sentence.find_first_not_of(" \t\r\n") == std::string::npos;
  }
  if (empty) throw std::invalid_argument("a vocabulary cannot be learned from a text without a character");
  if (bpe) return train_byte_bpe(sentences, options.size);
  return sentencepiece_to_json(train_sentencepiece(sentences, options), options.byte_fallback);
}

}  // namespace regard::text
