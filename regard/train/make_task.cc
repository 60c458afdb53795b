#include "regard/train/make_task.h"

#include "regard/train/language_model.h"

namespace regard::train {

std::unique_ptr<Task> make_task(const Recipe& recipe, const std::filesystem::path& /*folder*/) {
  return std::make_unique<LanguageModel>(std::get<LanguageModelRecipe>(recipe.task), recipe.train);
}

}  // namespace regard::train
