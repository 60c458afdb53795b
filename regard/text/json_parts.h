// The parts of a tokenizer.json that all kinds of tokenizer share. All functions throw io::Error.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/json.h"
#include "regard/text/tokenizer.h"

namespace regard::text {

// One tokenizer.json while it is read.
struct JsonSource {
  const io::Json& root;
  const io::Json& config;   // tokenizer_config.json; null where there is none
  const std::string& name;  // for messages
};

// The "type" of a component such as the normaliser: one of `known`, otherwise refused by name. `where` says
// which component.
const std::string& component_type(const io::Json& component, std::string_view where,
                                  std::initializer_list<std::string_view> known, const std::string& source);
// `component` alone, or the parts of a {"type": "Sequence"} under the key `parts`; none for null.
std::vector<const io::Json*> components(const io::Json* component, std::string_view where,
                                        std::string_view parts, const std::string& source);

// "added_tokens", checked for repeats and empty contents.
std::vector<AddedToken> read_added_tokens(const JsonSource& json);
// Puts the added tokens into the vocabulary (those that are there already must have that id) and finishes it.
void add_tokens(const std::vector<AddedToken>& added, Vocabulary& vocabulary);
// "post_processor".
Template read_template(const JsonSource& json, const Vocabulary& vocabulary);

// Vocabulary and added tokens put together with roles, flags and the chat template. `unknown`: the model's
// own unknown piece, may be empty. Added tokens with "normalized" go to `normalized_added` where that is not
// null.
TokenizerParts make_parts(const JsonSource& json, Vocabulary vocabulary, const std::vector<AddedToken>& added,
                          std::string_view unknown, AddedTokens* normalized_added);

// Roles by the usual spellings ("[CLS]", "</s>", ...), where a file says nothing else.
SpecialIds usual_roles(const Vocabulary& vocabulary);

std::unique_ptr<Tokenizer> wordpiece_from_json(const JsonSource& json);
std::unique_ptr<Tokenizer> bpe_from_json(const JsonSource& json);
std::unique_ptr<Tokenizer> unigram_from_json(const JsonSource& json);

}  // namespace regard::text
