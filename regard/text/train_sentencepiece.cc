#include "regard/text/train_sentencepiece.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <charconv>
#include <exception>
#include <stdexcept>
#include <unordered_map>

#include "regard/io/json.h"
#include "regard/text/vocabulary_json.h"

namespace regard::text {
namespace {

class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(std::span<const std::string> all) : all_(all) {}
  bool done() const override { return at_ == all_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return all_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::span<const std::string> all_;
  size_t at_ = 0;
};

std::string written(double value) {
  char text[40];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

std::string train_sentencepiece(std::span<const std::string> sentences, const VocabularyOptions& options) {
  const std::unordered_map<std::string, std::string> arguments = {
      {"model_type", "unigram"},
      {"vocab_size", std::to_string(options.size)},
      {"hard_vocab_limit", "false"},  // a small text has fewer pieces
      {"character_coverage", written(options.character_coverage)},
      {"byte_fallback", options.byte_fallback ? "true" : "false"},
      {"normalization_rule_name", "identity"},
      {"max_sentence_length", "1000000"},  // bytes; longer ones would be left out silently
      {"num_threads", "2"},                // sums of floats depend on it
      {"pad_id", std::to_string(kPadId)},
      {"unk_id", std::to_string(kUnknownId)},
      {"bos_id", std::to_string(kBosId)},
      {"eos_id", std::to_string(kEosId)},
      {"minloglevel", "3"}};  // it would tell standard error of its progress
  Sentences iterator(sentences);
  std::string model, what;
  try {
    const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &iterator, &model);
    if (status.ok()) return model;
    what = status.error_message();
  } catch (const std::exception& error) {  // its checks of protocol buffers throw
    what = error.what();
  }
  throw std::invalid_argument("a vocabulary of " + std::to_string(options.size) +
                              " pieces cannot be learned from this text; SentencePiece says: " + what);
}

std::string sentencepiece_to_json(const std::string& model, bool byte_fallback) {
  sentencepiece::SentencePieceProcessor processor;
  if (const auto status = processor.LoadFromSerializedProto(model); !status.ok())
    throw std::invalid_argument(std::string("SentencePiece: ") + status.error_message());
  io::Json pieces = io::Json::array();
  for (int id = 0; id < processor.GetPieceSize(); ++id)
    pieces.push_back({processor.IdToPiece(id), double{processor.GetScore(id)}});
  return unigram_json(pieces, byte_fallback);
}

std::string unigram_json(const io::Json& pieces, bool byte_fallback, TokenId behind) {
  io::Json json = vocabulary_json(behind);
  // SentencePiece's remove_extra_whitespaces and add_dummy_prefix.
  json["normalizer"] = {{"type", "Sequence"},
                        {"normalizers",
                         {{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}},
                          {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}}}}};
  const io::Json metaspace = {
      {"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", "always"}, {"split", true}};
  json["pre_tokenizer"] = metaspace;
  json["decoder"] = metaspace;
  if (byte_fallback)
    json["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, metaspace}}};
  json["model"] = {
      {"type", "Unigram"}, {"unk_id", kUnknownId}, {"byte_fallback", byte_fallback}, {"vocab", pieces}};
  return json.dump();
}

}  // namespace regard::text
