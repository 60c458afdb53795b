#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "regard/train/parameters.h"

namespace regard::train {

// Everything that a training needs to go on as if it had never stopped: parameters ("model/..."), the
// optimiser's memory ("optimizer/..."), and words about where it stands. One safetensors file, written
// atomically: it is whole or not there.
struct Checkpoint {
  int64_t step = 0;  // steps done
  std::vector<Parameters::Named> model;
  std::vector<Parameters::Named> optimizer;
  std::map<std::string, std::string> state;  // what else; "recipe" holds the recipe's text
};

// "checkpoint-000120.safetensors" in `folder`.
std::filesystem::path checkpoint_path(const std::filesystem::path& folder, int64_t step);

// Throws io::Error for the disk; nothing of an unfinished file stays, older ones are not touched.
void write_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

// Throws io::Error: not a checkpoint, damaged, cut short.
Checkpoint read_checkpoint(const std::filesystem::path& path);

// Numbers among the words of a state. number() gives back the bits that exact() wrote. Both throw io::Error
// naming `path` where the key is missing or holds anything but one number; whole numbers are not negative.
std::string exact(double value);
double number(const Checkpoint& checkpoint, const std::string& key, const std::filesystem::path& path);
int64_t whole_number(const Checkpoint& checkpoint, const std::string& key, const std::filesystem::path& path);

// The newest one of a folder; none where there is none.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder);

// Removes all but the newest `keep` (>= 1).
void remove_old_checkpoints(const std::filesystem::path& folder, int64_t keep);

}  // namespace regard::train
