#include "regard/io/model_folder.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "regard/io/error.h"

namespace regard::io {
namespace {

namespace fs = std::filesystem;

bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto [end, _] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

// The folder "models--ORG--NAME" of the Hugging Face cache above a snapshot, else the folder itself.
fs::path link_root_of(const fs::path& canonical) {
  const fs::path snapshots = canonical.parent_path();
  const fs::path model = snapshots.parent_path();
  const bool cached =
      snapshots.filename() == "snapshots" && model.filename().string().starts_with("models--");
  return cached ? model : canonical;
}

// A shard must lie beside the index that names it.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

ModelFolder ModelFolder::open(const fs::path& folder) {
  std::error_code error;
  ModelFolder result;
  result.path_ = fs::canonical(folder, error);
  if (error) fail(folder.string(), "cannot be opened: " + error.message());
  if (!fs::is_directory(result.path_, error)) fail(folder.string(), "is not a folder");
  result.link_root_ = link_root_of(result.path_);

  if (const auto path = result.file("config.json")) result.config_ = read_json(*path);
  if (const auto path = result.file("model.safetensors")) {
    result.add_shard(*path);
  } else if (const auto index = result.file("model.safetensors.index.json")) {
    result.open_index(*index);
  }
  for (const Safetensors& shard : result.shards_) {
    for (const Tensor& tensor : shard.tensors()) {
      if (!result.by_name_.emplace(tensor.name, &tensor).second) {
        fail(shard.source(), "tensor " + io::quoted(tensor.name) + " is in another shard too");
      }
    }
  }
  return result;
}

void ModelFolder::add_shard(const fs::path& path) {
  shards_.push_back(Safetensors::open(path));
}

void ModelFolder::open_index(const fs::path& path) {
  const Json index = read_json(path);
  const std::string source = path.string();
  const Json& map = require_object(index, "weight_map", source);
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const auto& [tensor, shard] : map.items()) {
    if (!shard.is_string() || !is_plain_name(shard.get_ref<const std::string&>())) {
      fail(source, "tensor " + io::quoted(tensor) + " is said to lie in " + describe(shard) +
                       "; only the plain name of a file in the same folder is allowed");
    }
    if (seen.insert(shard.get<std::string>()).second) names.push_back(shard.get<std::string>());
  }
  for (const std::string& name : names) {
    const auto shard = file(name);
    if (!shard) fail(source, "names the shard " + io::quoted(name) + ", which is missing");
    add_shard(*shard);
  }
  for (const auto& [tensor, shard] : map.items()) {
    const auto place = std::find(names.begin(), names.end(), shard.get_ref<const std::string&>());
    if (shards_[static_cast<size_t>(place - names.begin())].find(tensor) == nullptr) {
      fail(source, "tensor " + io::quoted(tensor) + " is not in " + describe(shard));
    }
  }
}

const Json& ModelFolder::config() const {
  if (!config_) fail(path_.string(), "config.json is missing");
  return *config_;
}

std::string ModelFolder::config_source() const {
  return (path_ / "config.json").string();
}

std::optional<fs::path> ModelFolder::file(std::string_view name) const {
  const fs::path relative(name);
  if (name.empty() || relative.is_absolute() || name.find('\0') != std::string_view::npos ||
      std::find(relative.begin(), relative.end(), "..") != relative.end()) {
    throw std::invalid_argument("ModelFolder::file: " + io::quoted(name) + " is not a path below the folder");
  }
  const fs::path path = path_ / relative;
  std::error_code error;
  if (fs::symlink_status(path, error).type() == fs::file_type::not_found) return std::nullopt;
  const fs::path target = fs::canonical(path, error);
  // A whole path component may be missing ("1_Pooling/config.json") or a link may dangle.
  if (error == std::errc::not_a_directory) return std::nullopt;
  if (error) fail(path.string(), "cannot be opened: " + error.message());
  if (!is_inside(target, link_root_)) {
    fail(path.string(), "links to " + target.string() + ", outside the model's folder; it is not opened");
  }
  return path;
}

std::optional<Json> ModelFolder::json(std::string_view name) const {
  const auto path = file(name);
  if (!path) return std::nullopt;
  return read_json(*path);
}

const Tensor* ModelFolder::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

const Tensor& ModelFolder::require(std::string_view name) const {
  if (const Tensor* tensor = find(name)) return *tensor;
  if (has_weights()) fail(path_.string(), "tensor " + io::quoted(name) + " is missing");
  if (file("pytorch_model.bin") || file("pytorch_model.bin.index.json")) {
    fail(path_.string(),
         "holds only pytorch_model.bin, a pickle, which Regard does not read; "
         "a model.safetensors is needed");
  }
  fail(path_.string(), "holds neither model.safetensors nor model.safetensors.index.json");
}

std::optional<fs::path> find_in_hf_cache(std::string_view org_and_name) {
  const size_t slash = org_and_name.find('/');
  const std::string org(org_and_name.substr(0, slash));
  const std::string name(slash == std::string_view::npos ? "" : org_and_name.substr(slash + 1));
  if (!is_plain_name(org) || !is_plain_name(name)) return std::nullopt;

  fs::path hub = environment("HF_HUB_CACHE");
  if (hub.empty() && !environment("HF_HOME").empty()) hub = fs::path(environment("HF_HOME")) / "hub";
  if (hub.empty()) {
    const std::string cache = environment("XDG_CACHE_HOME");
    const std::string home = environment("HOME");
    if (cache.empty() && home.empty()) return std::nullopt;
    hub = (cache.empty() ? fs::path(home) / ".cache" : fs::path(cache)) / "huggingface" / "hub";
  }
  const fs::path model = hub / ("models--" + org + "--" + name);
  std::error_code error;
  const fs::path reference = model / "refs" / "main";
  if (!fs::is_regular_file(reference, error)) return std::nullopt;
  std::string revision = read_text(reference);
  while (!revision.empty() && (revision.back() == '\n' || revision.back() == '\r')) revision.pop_back();
  if (!is_plain_name(revision)) fail(reference.string(), "does not hold the name of a revision");
  fs::path snapshot = model / "snapshots" / revision;
  if (!fs::is_directory(snapshot, error)) return std::nullopt;
  return snapshot;
}

}  // namespace regard::io
