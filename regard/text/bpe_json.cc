// Byte-level BPE from tokenizer.json.
#include <string>
#include <utility>

#include "regard/io/error.h"
#include "regard/text/bpe_merge_list.h"
#include "regard/text/byte_bpe.h"
#include "regard/text/json_parts.h"

namespace regard::text {
namespace {

using io::Json;

bool read_nfc(const JsonSource& json) {
  bool nfc = false;
  for (const Json* part : components(io::find_field(json.root, "normalizer", json.name), "normalizer",
                                     "normalizers", json.name)) {
    component_type(*part, "normalizer for byte-level BPE", {"NFC"}, json.name);
    nfc = true;
  }
  return nfc;
}

PreSplit read_split(const JsonSource& json) {
  std::optional<PreSplit> split;
  bool byte_level = false, digits = false;
  for (const Json* part : components(io::find_field(json.root, "pre_tokenizer", json.name), "pre_tokenizer",
                                     "pretokenizers", json.name)) {
    const std::string& type = component_type(*part, "pre_tokenizer for byte-level BPE",
                                             {"ByteLevel", "Digits", "Split"}, json.name);
    if (byte_level || (split && type != "ByteLevel"))
      io::fail(json.name, "pre_tokenizer has the step " + io::quoted(type) + " where none is known");
    if (type == "ByteLevel") {
      byte_level = true;
      if (io::bool_or(*part, "add_prefix_space", true, json.name))
        io::fail(json.name, "pre_tokenizer.add_prefix_space is true; only false is known");
      const bool use_regex = io::bool_or(*part, "use_regex", true, json.name);
      if (use_regex == split.has_value())
        io::fail(json.name, "pre_tokenizer splits " + std::string(use_regex ? "twice" : "nowhere") +
                                ", which is not known");
      if (!split) split = digits ? PreSplit::smollm : PreSplit::gpt2;
    } else if (type == "Digits") {
      if (digits || !io::bool_or(*part, "individual_digits", false, json.name))
        io::fail(json.name, "pre_tokenizer Digits is known only once and with individual_digits true");
      digits = true;
    } else {
      const Json& pattern = io::require_object(*part, "pattern", json.name);
      const std::string& regex = io::require_string(pattern, "Regex", json.name);
      split = known_split_regex(regex);
      if (!split || digits)
        io::fail(json.name, "pre_tokenizer splits by " + io::quoted(regex, 200) +
                                "; only the splits of GPT-2, SmolLM, Llama 3 and Qwen2 are known");
      if (io::string_or(*part, "behavior", "Isolated", json.name) != "Isolated" ||
          io::bool_or(*part, "invert", false, json.name))
        io::fail(json.name, "pre_tokenizer Split is known only with behavior Isolated and invert false");
    }
  }
  if (!byte_level) io::fail(json.name, "pre_tokenizer has no ByteLevel step; BPE is known only over bytes");
  return *split;
}

// Settings of the model that change its result, where they are not the ones of byte-level BPE.
void check_model(const Json& model, const std::string& source) {
  if (const Json* dropout = io::find_field(model, "dropout", source); dropout && *dropout != 0)
    io::fail(source, "model.dropout is " + io::describe(*dropout) + "; null is allowed");
  for (const std::string_view field : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!io::string_or(model, field, "", source).empty())
      io::fail(source, "model." + std::string(field) + " is " +
                           io::quoted(io::string_or(model, field, "", source)) + "; null is allowed");
  if (io::bool_or(model, "byte_fallback", false, source))
    io::fail(source, "model.byte_fallback is true; BPE is known only over bytes");
}

}  // namespace

std::unique_ptr<Tokenizer> bpe_from_json(const JsonSource& json) {
  const Json& model = io::require_object(json.root, "model", json.name);
  check_model(model, json.name);
  ByteBpeConfig config;
  config.split = read_split(json);
  config.nfc = read_nfc(json);
  config.ignore_merges = io::bool_or(model, "ignore_merges", false, json.name);
  config.fuse_unknown = io::bool_or(model, "fuse_unk", false, json.name);
  for (const Json* decoder :
       components(io::find_field(json.root, "decoder", json.name), "decoder", "decoders", json.name))
    component_type(*decoder, "decoder for byte-level BPE", {"ByteLevel"}, json.name);

  Vocabulary vocabulary(json.name);
  const Json& entries = io::require_object(model, "vocab", json.name);
  for (const auto& [piece, id] : entries.items())
    vocabulary.add(piece, io::require_int(entries, piece, 0, INT32_MAX, json.name));
  const auto added = read_added_tokens(json);
  add_tokens(added, vocabulary);
  size_t number = 0;
  for (const Json& merge : io::require_array(model, "merges", json.name)) {
    if (merge.is_string()) {
      add_written_merge(merge.get_ref<const std::string&>(), number, vocabulary, config.merges);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      add_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), number,
                vocabulary, config.merges);
    } else {
      io::fail(json.name, "merge " + std::to_string(number) + " is " + io::describe(merge) +
                              "; it must be a string of two pieces or a list of two");
    }
    ++number;
  }
  const std::string unknown = io::string_or(model, "unk_token", "", json.name);
  TokenizerParts parts = make_parts(json, std::move(vocabulary), added, unknown, nullptr);
  return std::make_unique<ByteBpe>(std::move(parts), std::move(config), !unknown.empty());
}

}  // namespace regard::text
