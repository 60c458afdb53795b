#include "regard/model/load_translator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "regard/io/error.h"
#include "regard/io/model_folder.h"
#include "regard/model/registry.h"
#include "regard/model/rnn_translator.h"
#include "regard/model/transformer_translator.h"
#include "regard/model/translator_config.h"
#include "regard/model/weight_file.h"
#include "regard/text/load.h"

namespace regard::model {
namespace {

void require_translator(const io::Json& config, const std::string& source) {
  if (is_translator_config(config, source)) return;
  const std::string type = io::string_or(config, "model_type", "", source);
  io::fail(source, "model_type is " + io::quoted(type) +
                       "; the known translators are rnn_translator, transformer_translator");
}

}  // namespace

std::unique_ptr<Translator> make_translator(const io::Json& config, const std::string& source,
                                            const WeightSource& weights) {
  require_translator(config, source);
  if (config["model_type"] == "rnn_translator") {
    return make_rnn_translator(read_rnn_translator(config, source), weights);
  }
  return make_transformer_translator(read_transformer_translator(config, source), weights);
}

bool is_translator(const std::string& name_or_path) {
  const ModelLocation location = find_model(name_or_path);
  if (location.format != ModelFormat::folder) return false;
  const std::filesystem::path config = location.path / "config.json";
  std::error_code error;
  return std::filesystem::exists(config, error) &&
         is_translator_config(io::read_json(config), config.string());
}

LoadedTranslator load_translator(const std::string& name_or_path) {
  const ModelLocation location = find_model(name_or_path);
  if (location.format != ModelFormat::folder) {
    io::fail(location.path.string(), "this is no folder; a translator is a folder with config.json");
  }
  const auto folder = std::make_shared<const io::ModelFolder>(io::ModelFolder::open(location.path));
  const io::Json& config = folder->config();
  const std::string source = folder->config_source();
  require_translator(config, source);
  const WeightFile weights(folder);
  LoadedTranslator loaded;
  loaded.name = name_or_path;
  loaded.type = io::require_string(config, "model_type", source);
  loaded.model = make_translator(config, source, weights);
  loaded.tokenizer = text::load_tokenizer(*folder);
  loaded.file_bytes = weights.bytes();
  const int64_t rows = loaded.model->vocabulary();
  loaded.bos = io::require_int(config, "bos_token_id", 0, rows - 1, source);
  loaded.eos = io::require_int(config, "eos_token_id", 0, rows - 1, source);
  loaded.pad = io::require_int(config, "pad_token_id", 0, rows - 1, source);
  if (const auto pieces = static_cast<int64_t>(loaded.tokenizer->vocabulary_size()); pieces > rows) {
    io::fail(location.path.string(), "the tokenizer has " + std::to_string(pieces) +
                                         " pieces, the model only " + std::to_string(rows));
  }
  return loaded;
}

std::vector<int64_t> source_ids(const text::Tokenizer& tokenizer, std::string_view text, int64_t eos) {
  const text::Encoding encoding = tokenizer.encode(text, {.add_special = false});
  std::vector<int64_t> ids(encoding.ids.begin(), encoding.ids.end());
  ids.push_back(eos);
  return ids;
}

Source pad_sources(const std::vector<std::vector<int64_t>>& ids, int64_t pad) {
  size_t longest = 0;
  size_t shortest = SIZE_MAX;
  for (const std::vector<int64_t>& text : ids) {
    longest = std::max(longest, text.size());
    shortest = std::min(shortest, text.size());
  }
  if (ids.empty() || shortest == 0) throw std::invalid_argument("pad_sources: a source has no tokens");
  const auto count = static_cast<int64_t>(ids.size());
  Source source;
  source.ids = at::full({count, static_cast<int64_t>(longest)}, pad, at::kLong);
  auto* to = source.ids.mutable_data_ptr<int64_t>();
  for (const std::vector<int64_t>& text : ids) {
    std::copy(text.begin(), text.end(), to);
    to += longest;
  }
  if (shortest == longest) return source;
  source.lengths = at::empty({count}, at::kLong);
  std::transform(ids.begin(), ids.end(), source.lengths.mutable_data_ptr<int64_t>(),
                 [](const std::vector<int64_t>& text) { return static_cast<int64_t>(text.size()); });
  return source;
}

}  // namespace regard::model
