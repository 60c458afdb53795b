#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "regard/train/parameters.h"

namespace regard::train {

// A trained model as `--model FOLDER` reads it: config.json and tokenizer.json (not written where they are
// empty) and model.safetensors, each whole or not at all. Throws io::Error for the disk.
void save_model_folder(const std::filesystem::path& folder, const std::string& config,
                       const std::string& tokenizer, const std::vector<Parameters::Named>& parameters);

}  // namespace regard::train
