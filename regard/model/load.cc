#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "regard/io/error.h"
#include "regard/model/bert.h"
#include "regard/model/config.h"
#include "regard/model/decoder.h"
#include "regard/model/load.h"
#include "regard/model/model.h"
#include "regard/model/registry.h"
#include "regard/model/weight_file.h"
#include "regard/text/load.h"

namespace regard::model {
namespace {

std::unique_ptr<Model> build(const TransformerConfig& config, const WeightFile& weights, Naming naming) {
  if (config.architecture == "bert") return make_bert(config, weights);
  return make_decoder(config, weights, naming);
}

// What sentence-transformers writes beside a model: how token states become one vector.
void read_pooling(const io::ModelFolder& folder, Loaded& loaded) {
  if (const auto sentence = folder.json("sentence_bert_config.json")) {
    loaded.embed_length =
        io::int_or(*sentence, "max_seq_length", 0, 1, int64_t{1} << 30, "sentence_bert_config.json");
  }
  if (const auto pooling = folder.json("1_Pooling/config.json")) {
    const std::string source = (folder.path() / "1_Pooling/config.json").string();
    const bool mean = io::bool_or(*pooling, "pooling_mode_mean_tokens", false, source);
    const bool cls = io::bool_or(*pooling, "pooling_mode_cls_token", false, source);
    if (mean == cls) {
      io::fail(source,
               "exactly one of pooling_mode_mean_tokens and pooling_mode_cls_token must be true; others are "
               "not known");
    }
    loaded.pooling = mean ? Pooling::mean : Pooling::cls;
  }
  if (const auto modules = folder.json("modules.json"); modules && modules->is_array()) {
    loaded.normalize = false;
    for (const io::Json& module : *modules) {
      const auto type = module.is_object() ? io::string_or(module, "type", "", "modules.json") : "";
      if (type.ends_with(".Normalize")) loaded.normalize = true;
    }
  }
}

bool has_blocks(const std::vector<io::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const io::Tensor& tensor) { return io::is_quantized(tensor.type); });
}

Loaded load_folder(const std::filesystem::path& path, const LoadOptions& options) {
  const auto folder = std::make_shared<const io::ModelFolder>(io::ModelFolder::open(path));
  Loaded loaded;
  loaded.precision = options.precision.value_or(Precision::f32);
  const WeightFile weights(folder, loaded.precision);
  loaded.model = build(read_config(folder->config(), folder->config_source()), weights, Naming::hugging_face);
  loaded.tokenizer = text::load_tokenizer(*folder);
  loaded.file_bytes = weights.bytes();
  read_pooling(*folder, loaded);
  return loaded;
}

Loaded load_gguf(const std::filesystem::path& path, const LoadOptions& options) {
  const auto gguf = std::make_shared<const io::Gguf>(io::Gguf::open(path));
  Loaded loaded;
  loaded.precision =
      options.precision.value_or(has_blocks(gguf->tensors()) ? Precision::int8 : Precision::f32);
  const WeightFile weights(gguf, loaded.precision);
  loaded.model = build(read_config(*gguf), weights, Naming::gguf);
  loaded.tokenizer = text::load_tokenizer(*gguf);
  loaded.file_bytes = weights.bytes();
  return loaded;
}

Loaded load_e5(const std::filesystem::path& path, const LoadOptions& options) {
  const auto file = std::make_shared<const io::E5File>(io::E5File::open(path));
  Loaded loaded;
  loaded.precision =
      options.precision.value_or(has_blocks(file->tensors()) ? Precision::int8 : Precision::f32);
  const WeightFile weights(file, loaded.precision);
  loaded.model = build(read_config(*file), weights, Naming::hugging_face);
  loaded.tokenizer = text::load_tokenizer(*file);
  loaded.file_bytes = weights.bytes();
  // The model was trained with "query: " or "passage: " in front of each text.
  loaded.embed_prefix = "query: ";
  return loaded;
}

}  // namespace

std::unique_ptr<Model> load_weights(std::shared_ptr<const io::ModelFolder> folder) {
  const TransformerConfig config = read_config(folder->config(), folder->config_source());
  return build(config, WeightFile(std::move(folder)), Naming::hugging_face);
}

Loaded load(const std::string& name_or_path, const LoadOptions& options) {
  const ModelLocation location = find_model(name_or_path);
  Loaded loaded = location.format == ModelFormat::gguf ? load_gguf(location.path, options)
                  : location.format == ModelFormat::e5 ? load_e5(location.path, options)
                                                       : load_folder(location.path, options);
  loaded.name = name_or_path;
  const auto pieces = static_cast<int64_t>(loaded.tokenizer->vocabulary_size());
  if (const int64_t rows = loaded.model->config().vocabulary; pieces > rows) {
    io::fail(location.path.string(), "the tokenizer has " + std::to_string(pieces) +
                                         " pieces, the embedding only " + std::to_string(rows) + " rows");
  }
  return loaded;
}

}  // namespace regard::model
