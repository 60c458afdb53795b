// The tables of a recipe, kind by kind. All throw std::invalid_argument.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "regard/train/recipe.h"
#include "regard/train/recipe_table.h"

namespace regard::train {

inline constexpr int64_t kManySteps = int64_t{1} << 40;

// One path or several, relative to the recipe's folder.
std::vector<std::filesystem::path> read_paths(RecipeTable& table, const std::string& key,
                                              const std::filesystem::path& folder);
uint64_t read_seed(RecipeTable& table);
// The keys of a generated task, `task` among them, and how many texts to train and to validate on.
void read_generated(RecipeTable& table, GeneratedTask& task, int64_t& train, int64_t& valid);
// "initialisation", "deviation" and, for a model with `layers` layers (0: no such key), "scale_residual".
Initialisation read_initialisation(RecipeTable& table, const std::string& otherwise, int64_t layers);
// What all kinds have in [train]; `width`: of the model. Does not finish the table.
TrainRecipe read_training(RecipeTable& table, int64_t width);

LanguageModelRecipe read_language_model(RecipeTable data, RecipeTable model,
                                        const std::filesystem::path& folder);
TrainRecipe read_language_model_training(RecipeTable table, const LanguageModelRecipe& recipe);

TranslatorRecipe read_translator(RecipeTable data, RecipeTable model, const std::filesystem::path& folder);
TrainRecipe read_translator_training(RecipeTable table, const TranslatorRecipe& recipe);

ClassifierRecipe read_classifier(RecipeTable data, RecipeTable model, const std::filesystem::path& folder);
TrainRecipe read_classifier_training(RecipeTable table, const ClassifierRecipe& recipe);

}  // namespace regard::train
