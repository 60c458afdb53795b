#include "regard/train/make_task.h"

#include "regard/train/classification.h"
#include "regard/train/language_model.h"
#include "regard/train/translation.h"

namespace regard::train {

std::unique_ptr<Task> make_task(const Recipe& recipe, const std::filesystem::path& folder) {
  if (const auto* translator = std::get_if<TranslatorRecipe>(&recipe.task))
    return std::make_unique<Translation>(*translator, recipe.train, folder);
  if (const auto* classifier = std::get_if<ClassifierRecipe>(&recipe.task))
    return std::make_unique<Classification>(*classifier, recipe.train);
  return std::make_unique<LanguageModel>(std::get<LanguageModelRecipe>(recipe.task), recipe.train);
}

}  // namespace regard::train
