#include "regard/text/load.h"

#include <string>
#include <utility>

#include "regard/io/error.h"
#include "regard/io/json.h"
#include "regard/io/mapped_file.h"
#include "regard/text/json_parts.h"

namespace regard::text {
namespace {

std::unique_ptr<Tokenizer> from_json(const io::Json& root, const io::Json& config,
                                     const std::string& source) {
  const JsonSource json{root, config, source};
  if (!root.is_object()) io::fail(source, "holds " + io::describe(root) + "; an object is allowed");
  const std::string& type = component_type(io::require_object(root, "model", source), "model",
                                           {"WordPiece", "BPE", "Unigram"}, source);
  if (type == "WordPiece") return wordpiece_from_json(json);
  if (type == "BPE") return bpe_from_json(json);
  return unigram_from_json(json);
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_json(std::string_view json, const std::string& source,
                                               std::string_view config_json) {
  const io::Json config =
      config_json.empty() ? io::Json() : io::parse_json(config_json, source + " (tokenizer_config.json)");
  return from_json(io::parse_json(json, source), config, source);
}

std::unique_ptr<Tokenizer> load_tokenizer(const io::ModelFolder& folder) {
  io::Json config = folder.json("tokenizer_config.json").value_or(io::Json());
  if (const auto path = folder.file("tokenizer.json")) {
    // Newer folders keep the template in a file of its own, which then counts.
    if (const auto jinja = folder.file("chat_template.jinja")) {
      if (!config.is_object()) config = io::Json::object();
      config["chat_template"] = io::read_text(*jinja);
    }
    return from_json(io::read_json(*path), config, path->string());
  }
  if (const auto path = folder.file("vocab.txt")) {
    const bool lowercase =
        config.is_object() ? io::bool_or(config, "do_lower_case", true, "tokenizer_config.json") : true;
    return tokenizer_from_vocab_txt(io::read_text(*path), path->string(), lowercase);
  }
  io::fail(folder.path().string(), "holds neither tokenizer.json nor vocab.txt");
}

}  // namespace regard::text
