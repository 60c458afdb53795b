// A model as Hugging Face lays it out: one folder with config.json, tokenizer files and safetensors shards.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "regard/io/json.h"
#include "regard/io/safetensors.h"
#include "regard/io/tensor.h"

namespace regard::io {

// Move-only. Opens nothing outside the folder: a link may point elsewhere only inside the same
// `models--ORG--NAME` folder, as the Hugging Face cache does (snapshots/REVISION/FILE -> ../../blobs/HASH).
class ModelFolder {
 public:
  // Reads config.json where there is one and maps the weights: model.safetensors, else the shards that
  // model.safetensors.index.json names. Throws Error for a folder that is missing or damaged.
  static ModelFolder open(const std::filesystem::path& folder);

  ModelFolder(ModelFolder&&) = default;
  ModelFolder& operator=(ModelFolder&&) = default;

  const std::filesystem::path& path() const { return path_; }
  bool has_config() const { return config_.has_value(); }
  const Json& config() const;         // throws Error where config.json is missing
  std::string config_source() const;  // "FOLDER/config.json", for messages

  // A file of the folder, such as "tokenizer.json" or "1_Pooling/config.json"; nothing where absent. Throws
  // Error where it links out of the folder; std::invalid_argument for a name that is not a relative path
  // below it.
  std::optional<std::filesystem::path> file(std::string_view name) const;
  // The same, parsed.
  std::optional<Json> json(std::string_view name) const;

  bool has_weights() const { return !shards_.empty(); }
  const Tensor* find(std::string_view name) const;  // over all shards; null where absent
  const Tensor& require(
      std::string_view name) const;  // throws Error where absent, or where there are no weights
  const std::vector<Safetensors>& shards() const { return shards_; }

 private:
  ModelFolder() = default;
  void add_shard(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& path);

  std::filesystem::path path_;  // canonical
  std::filesystem::path
      link_root_;  // links may lead anywhere below this: path_, or the models--* folder above it
  std::optional<Json> config_;
  std::vector<Safetensors> shards_;
  std::unordered_map<std::string_view, const Tensor*> by_name_;
};

// The snapshot folder of ORG/NAME in the local Hugging Face cache (HF_HUB_CACHE, else HF_HOME/hub, else
// ~/.cache/huggingface/hub): the revision that refs/main names. Nothing where it is not there; never the
// network.
std::optional<std::filesystem::path> find_in_hf_cache(std::string_view org_and_name);

}  // namespace regard::io
