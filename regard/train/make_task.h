#pragma once

#include <filesystem>
#include <memory>

#include "regard/train/recipe.h"
#include "regard/train/task.h"

namespace regard::train {

// What a recipe trains, by its kind; `folder`: of the training. Throws io::Error and std::invalid_argument
// for the data.
std::unique_ptr<Task> make_task(const Recipe& recipe, const std::filesystem::path& folder);

}  // namespace regard::train
