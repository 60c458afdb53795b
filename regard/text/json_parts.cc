#include "regard/text/json_parts.h"

#include <unordered_set>
#include <utility>

#include "regard/io/error.h"

namespace regard::text {
namespace {

using io::Json;

std::string joined(std::initializer_list<std::string_view> names) {
  std::string out;
  for (const std::string_view name : names) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

// A role in tokenizer_config.json is a string or an added token as an object.
const std::string* config_token(const Json& config, std::string_view field) {
  if (!config.is_object()) return nullptr;
  const Json* value = io::find_field(config, field);
  if (value && value->is_object()) value = io::find_field(*value, "content");
  return value && value->is_string() ? value->get_ptr<const std::string*>() : nullptr;
}

std::optional<std::string> read_chat_template(const JsonSource& json) {
  if (!json.config.is_object()) return std::nullopt;
  const Json* value = io::find_field(json.config, "chat_template");
  if (!value) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  // Several named ones: the default is the one for plain chat.
  if (value->is_array())
    for (const Json& entry : *value)
      if (entry.is_object() && io::string_or(entry, "name", "", json.name) == "default")
        return io::require_string(entry, "template", json.name);
  return std::nullopt;
}

TemplateItem special_item(TokenId id, uint8_t type_id, const Vocabulary& vocabulary) {
  if (!vocabulary.has(id))
    io::fail(vocabulary.source(), "post_processor names the token id " + std::to_string(id) +
                                      ", which is not in the vocabulary of " +
                                      std::to_string(vocabulary.size()));
  return {TemplateItem::Kind::special, id, vocabulary.piece(id), type_id};
}

std::vector<TemplateItem> read_items(const Json& processor, std::string_view field, bool pair,
                                     const Vocabulary& vocabulary, const std::string& source) {
  std::vector<TemplateItem> out;
  int firsts = 0, seconds = 0;
  for (const Json& item : io::require_array(processor, field, source)) {
    if (const Json* sequence = io::find_field(item, "Sequence", source)) {
      const std::string& id = io::require_string(*sequence, "id", source);
      const auto type_id = uint8_t(io::int_or(*sequence, "type_id", 0, 0, 255, source));
      if (id != "A" && id != "B")
        io::fail(source, "post_processor." + std::string(field) + ": the sequence " + io::quoted(id) +
                             " is not known; known are A, B");
      ++(id == "A" ? firsts : seconds);
      out.push_back({id == "A" ? TemplateItem::Kind::first : TemplateItem::Kind::second, 0, {}, type_id});
      continue;
    }
    const Json& token = io::require_object(item, "SpecialToken", source);
    const auto type_id = uint8_t(io::int_or(token, "type_id", 0, 0, 255, source));
    const std::string& name = io::require_string(token, "id", source);
    const Json& entry =
        io::require_object(io::require_object(processor, "special_tokens", source), name, source);
    for (const Json& id : io::require_array(entry, "ids", source)) {
      if (!id.is_number_integer())
        io::fail(source, "post_processor: an id of " + io::quoted(name) + " is " + io::describe(id) +
                             "; whole numbers are allowed");
      out.push_back(
          special_item(id.is_number_unsigned() && id.get<uint64_t>() > INT64_MAX ? -1 : id.get<int64_t>(),
                       type_id, vocabulary));
    }
  }
  if (firsts != 1 || seconds != (pair ? 1 : 0))
    io::fail(source, "post_processor." + std::string(field) + " must hold " +
                         (pair ? "the sequences A and B once each" : "the sequence A once and no other"));
  return out;
}

// ["[SEP]", 102]
TokenId named_id(const Json& processor, std::string_view field, const std::string& source) {
  const Json& entry = io::require_array(processor, field, source);
  if (entry.size() != 2 || !entry[1].is_number_unsigned() || entry[1].get<uint64_t>() > INT32_MAX)
    io::fail(source, "post_processor." + std::string(field) + " must be a token and its id");
  return entry[1].get<TokenId>();
}

Template cls_sep_template(const Json& processor, bool roberta, const Vocabulary& vocabulary,
                          const std::string& source) {
  using Kind = TemplateItem::Kind;
  const TokenId cls = named_id(processor, "cls", source), sep = named_id(processor, "sep", source);
  const auto special = [&](TokenId id, uint8_t type) { return special_item(id, type, vocabulary); };
  const TemplateItem a{Kind::first, 0, {}, 0}, b{Kind::second, 0, {}, uint8_t(roberta ? 0 : 1)};
  Template out;
  out.single = {special(cls, 0), a, special(sep, 0)};
  out.pair = {special(cls, 0), a, special(sep, 0)};
  if (roberta) out.pair.push_back(special(sep, 0));
  out.pair.push_back(b);
  out.pair.push_back(special(sep, b.type_id));
  return out;
}

}  // namespace

const std::string& component_type(const Json& component, std::string_view where,
                                  std::initializer_list<std::string_view> known, const std::string& source) {
  const std::string& type = io::require_string(component, "type", source);
  for (const std::string_view name : known)
    if (type == name) return type;
  io::fail(source,
           std::string(where) + " of type " + io::quoted(type) + " is not known; known are " + joined(known));
}

std::vector<const Json*> components(const Json* component, std::string_view where, std::string_view parts,
                                    const std::string& source) {
  if (!component) return {};
  if (!component->is_object())
    io::fail(source, std::string(where) + " is " + io::describe(*component) + "; an object is allowed");
  if (io::require_string(*component, "type", source) != "Sequence") return {component};
  std::vector<const Json*> out;
  for (const Json& part : io::require_array(*component, parts, source)) {
    if (!part.is_object())
      io::fail(source, std::string(where) + " holds " + io::describe(part) + "; objects are allowed");
    out.push_back(&part);
  }
  return out;
}

std::vector<AddedToken> read_added_tokens(const JsonSource& json) {
  std::vector<AddedToken> out;
  const Json* list = io::find_field(json.root, "added_tokens", json.name);
  if (!list) return out;
  std::unordered_set<std::string_view> seen;
  for (const Json& entry : io::require_array(json.root, "added_tokens", json.name)) {
    AddedToken token;
    const std::string& content = io::require_string(entry, "content", json.name);
    token.content = content;
    token.id = io::require_int(entry, "id", 0, INT32_MAX, json.name);
    token.special = io::bool_or(entry, "special", false, json.name);
    token.single_word = io::bool_or(entry, "single_word", false, json.name);
    token.lstrip = io::bool_or(entry, "lstrip", false, json.name);
    token.rstrip = io::bool_or(entry, "rstrip", false, json.name);
    token.normalized = io::bool_or(entry, "normalized", !token.special, json.name);
    if (content.empty())
      io::fail(json.name, "the added token with id " + std::to_string(token.id) + " is empty");
    if (!seen.insert(content).second)
      io::fail(json.name, "the added token " + io::quoted(content) + " is given twice");
    out.push_back(std::move(token));
  }
  return out;
}

void add_tokens(const std::vector<AddedToken>& added, Vocabulary& vocabulary) {
  for (const AddedToken& token : added) {
    const auto known = vocabulary.find(token.content);
    if (!known) {
      vocabulary.add(token.content, token.id);
    } else if (*known != token.id) {
      io::fail(vocabulary.source(), "the added token " + io::quoted(token.content) + " has the id " +
                                        std::to_string(token.id) + ", but " + std::to_string(*known) +
                                        " in the vocabulary");
    }
  }
  vocabulary.finish();
}

Template read_template(const JsonSource& json, const Vocabulary& vocabulary) {
  Template out;
  int found = 0;
  for (const Json* part : components(io::find_field(json.root, "post_processor", json.name), "post_processor",
                                     "processors", json.name)) {
    const std::string& type =
        component_type(*part, "post_processor",
                       {"ByteLevel", "TemplateProcessing", "BertProcessing", "RobertaProcessing"}, json.name);
    if (type == "ByteLevel") continue;  // offsets only
    if (++found > 1) io::fail(json.name, "post_processor adds special tokens in more than one step");
    if (type == "TemplateProcessing") {
      out.single = read_items(*part, "single", false, vocabulary, json.name);
      out.pair = read_items(*part, "pair", true, vocabulary, json.name);
    } else {
      out = cls_sep_template(*part, type == "RobertaProcessing", vocabulary, json.name);
    }
  }
  return out;
}

SpecialIds usual_roles(const Vocabulary& vocabulary) {
  const auto first_of = [&](std::initializer_list<std::string_view> names) -> std::optional<TokenId> {
    for (const std::string_view name : names)
      if (const auto id = vocabulary.find(name)) return id;
    return std::nullopt;
  };
  return {.cls = first_of({"[CLS]"}),
          .sep = first_of({"[SEP]"}),
          .pad = first_of({"[PAD]", "<pad>"}),
          .unk = first_of({"[UNK]", "<unk>"}),
          .mask = first_of({"[MASK]", "<mask>"}),
          .bos = first_of({"<s>", "<|begin_of_text|>"}),
          .eos = first_of({"</s>", "<|end_of_text|>", "<|endoftext|>"})};
}

TokenizerParts make_parts(const JsonSource& json, Vocabulary vocabulary, const std::vector<AddedToken>& added,
                          std::string_view unknown, AddedTokens* normalized_added) {
  TokenizerParts parts{std::move(vocabulary), {}, {}, {}, {}, read_chat_template(json)};
  parts.ids = usual_roles(parts.vocabulary);
  const std::pair<std::string_view, std::optional<TokenId> SpecialIds::*> roles[] = {
      {"cls_token", &SpecialIds::cls},   {"sep_token", &SpecialIds::sep}, {"pad_token", &SpecialIds::pad},
      {"mask_token", &SpecialIds::mask}, {"bos_token", &SpecialIds::bos}, {"eos_token", &SpecialIds::eos}};
  for (const auto& [field, role] : roles)
    if (const std::string* piece = config_token(json.config, field))
      parts.ids.*role = parts.vocabulary.find(*piece);
  if (!unknown.empty()) {
    parts.ids.unk = parts.vocabulary.find(unknown);
    if (!parts.ids.unk)
      io::fail(json.name, "model.unk_token " + io::quoted(unknown) + " is not in the vocabulary");
  }
  parts.special.assign(parts.vocabulary.size(), 0);
  std::vector<AddedToken> plain, normalized;
  for (const AddedToken& token : added) {
    parts.special[size_t(token.id)] = token.special;
    (token.normalized && normalized_added ? normalized : plain).push_back(token);
  }
  parts.added = AddedTokens(std::move(plain));
  if (normalized_added) *normalized_added = AddedTokens(std::move(normalized));
  parts.around = read_template(json, parts.vocabulary);
  return parts;
}

}  // namespace regard::text
