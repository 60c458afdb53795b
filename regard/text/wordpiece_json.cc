#include <algorithm>
#include <unordered_set>

#include "regard/io/error.h"
#include "regard/text/json_parts.h"
#include "regard/text/load.h"
#include "regard/text/utf8.h"
#include "regard/text/wordpiece.h"

namespace regard::text {
namespace {

using io::Json;

BertNormalizer read_normalizer(const JsonSource& json) {
  BertNormalizer out{
      .clean_text = false, .handle_chinese_chars = false, .strip_accents = false, .lowercase = false};
  const auto parts =
      components(io::find_field(json.root, "normalizer", json.name), "normalizer", "normalizers", json.name);
  if (parts.size() > 1)
    io::fail(json.name, "normalizer has " + std::to_string(parts.size()) +
                            " steps; for WordPiece one BertNormalizer is allowed");
  for (const Json* part : parts) {
    component_type(*part, "normalizer for WordPiece", {"BertNormalizer"}, json.name);
    out.clean_text = io::bool_or(*part, "clean_text", true, json.name);
    out.handle_chinese_chars = io::bool_or(*part, "handle_chinese_chars", true, json.name);
    out.lowercase = io::bool_or(*part, "lowercase", true, json.name);
    out.strip_accents.reset();
    if (io::find_field(*part, "strip_accents", json.name))
      out.strip_accents = io::require_bool(*part, "strip_accents", json.name);
  }
  return out;
}

// Added tokens that are matched in normalised text are normalised themselves.
AddedTokens normalized_tokens(const AddedTokens& tokens, const BertNormalizer& normalizer,
                              const std::string& source) {
  std::vector<AddedToken> out = tokens.tokens();
  for (AddedToken& token : out) {
    const std::string content = normalizer(token.content, 0).text();
    if (content.empty())
      io::fail(source, "the added token " + io::quoted(token.content) + " is empty after normalisation");
    token.content = content;
  }
  std::unordered_set<std::string_view> seen;
  for (const AddedToken& token : out)
    if (!seen.insert(token.content).second)
      io::fail(source, "two added tokens are both " + io::quoted(token.content) + " after normalisation");
  return AddedTokens(std::move(out));
}

}  // namespace

std::unique_ptr<Tokenizer> wordpiece_from_json(const JsonSource& json) {
  const Json& model = io::require_object(json.root, "model", json.name);
  Vocabulary vocabulary(json.name);
  const Json& entries = io::require_object(model, "vocab", json.name);
  for (const auto& [piece, id] : entries.items())
    vocabulary.add(piece, io::require_int(entries, piece, 0, INT32_MAX, json.name));
  const auto added = read_added_tokens(json);
  add_tokens(added, vocabulary);

  WordPieceConfig config;
  config.normalizer = read_normalizer(json);
  config.prefix = io::string_or(model, "continuing_subword_prefix", "##", json.name);
  config.max_word_characters =
      size_t(io::int_or(model, "max_input_chars_per_word", 100, 1, 1'000'000, json.name));
  const auto splits = components(io::find_field(json.root, "pre_tokenizer", json.name), "pre_tokenizer",
                                 "pretokenizers", json.name);
  if (splits.size() != 1)
    io::fail(json.name, "pre_tokenizer has " + std::to_string(splits.size()) +
                            " steps; for WordPiece one BertPreTokenizer is allowed");
  component_type(*splits[0], "pre_tokenizer for WordPiece", {"BertPreTokenizer"}, json.name);
  const auto decoders =
      components(io::find_field(json.root, "decoder", json.name), "decoder", "decoders", json.name);
  for (const Json* decoder : decoders) {
    component_type(*decoder, "decoder for WordPiece", {"WordPiece"}, json.name);
    config.decoder_cleanup = io::bool_or(*decoder, "cleanup", true, json.name);
  }

  TokenizerParts parts =
      make_parts(json, std::move(vocabulary), added, io::string_or(model, "unk_token", "[UNK]", json.name),
                 &config.normalized_added);
  config.normalized_added = normalized_tokens(config.normalized_added, config.normalizer, json.name);
  return std::make_unique<WordPiece>(std::move(parts), std::move(config));
}

std::unique_ptr<Tokenizer> tokenizer_from_vocab_txt(std::string_view text, const std::string& source,
                                                    bool lowercase) {
  if (const auto bad = find_invalid_utf8(text)) io::fail_at(source, "is not valid UTF-8", *bad);
  Vocabulary vocabulary(source);
  int64_t id = 0;
  for (size_t begin = 0; begin < text.size(); ++id) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty())
      io::fail(source, "line " + std::to_string(id + 1) + " is empty; each line must hold one piece");
    vocabulary.add(line, id);
    begin = end + 1;
  }
  vocabulary.finish();

  TokenizerParts parts{std::move(vocabulary), {}, {}, {}, {}, {}};
  parts.ids = usual_roles(parts.vocabulary);
  if (!parts.ids.cls || !parts.ids.sep || !parts.ids.unk)
    io::fail(source, "a vocabulary for WordPiece needs the pieces [CLS], [SEP] and [UNK]");
  parts.special.assign(parts.vocabulary.size(), 0);
  std::vector<AddedToken> added;
  for (const auto& id : {parts.ids.pad, parts.ids.unk, parts.ids.cls, parts.ids.sep, parts.ids.mask}) {
    if (!id) continue;
    parts.special[size_t(*id)] = 1;
    added.push_back({.content = parts.vocabulary.piece(*id), .id = *id});
  }
  parts.added = AddedTokens(std::move(added));
  using Kind = TemplateItem::Kind;
  const auto special = [&](TokenId id, uint8_t type) {
    return TemplateItem{Kind::special, id, parts.vocabulary.piece(id), type};
  };
  parts.around.single = {special(*parts.ids.cls, 0), {Kind::first, 0, {}, 0}, special(*parts.ids.sep, 0)};
  parts.around.pair = parts.around.single;
  parts.around.pair.push_back({Kind::second, 0, {}, 1});
  parts.around.pair.push_back(special(*parts.ids.sep, 1));
  WordPieceConfig config;
  config.normalizer.lowercase = lowercase;
  return std::make_unique<WordPiece>(std::move(parts), std::move(config));
}

}  // namespace regard::text
