// The tables of `kind = "classifier"`.
#include <stdexcept>
#include <string>
#include <utility>

#include "regard/train/recipe_parts.h"

namespace regard::train {
namespace {

std::filesystem::path read_path(RecipeTable& table, const char* key, const std::filesystem::path& folder) {
  const std::string name = table.text(key, "");
  return name.empty() ? std::filesystem::path() : folder / name;
}

ImageRecipe read_data(RecipeTable table, const std::filesystem::path& folder) {
  ImageRecipe out;
  out.train = read_path(table, "train", folder);
  out.train_labels = read_path(table, "train_labels", folder);
  out.valid = read_path(table, "valid", folder);
  out.valid_labels = read_path(table, "valid_labels", folder);
  out.shift = table.integer("shift", 0, 0, 1 << 12);
  out.flip = table.flag("flip", false);
  table.finish();
  if (out.train.empty())
    throw std::invalid_argument(table.place("train") + " is missing: an IDX file of pictures");
  if (out.train_labels.empty() || out.valid.empty() != out.valid_labels.empty()) {
    throw std::invalid_argument(table.place(out.train_labels.empty() ? "train_labels" : "valid_labels") +
                                ": pictures and labels go together");
  }
  return out;
}

model::VitConfig read_model(RecipeTable& table) {
  model::VitConfig out;
  out.patch = table.integer("patch", 4, 1, 1 << 12);
  out.layers = table.integer("layers", 4, 1, 256);
  out.width = table.integer("width", 64, 1, 1 << 16);
  out.heads = table.integer("heads", 4, 1, 1024);
  out.feed_forward = table.integer("feed_forward", 4 * out.width, 1, 1 << 18);
  out.dropout = table.number("dropout", 0.1, 0, 0.99);
  out.attention_dropout = table.number("attention_dropout", 0, 0, 0.99);
  out.positions = table.flag("positions", true);
  if (out.width % out.heads != 0) {
    throw std::invalid_argument(table.place("width") + " is " + std::to_string(out.width) +
                                "; it must be a multiple of heads (" + std::to_string(out.heads) + ")");
  }
  return out;
}

}  // namespace

ClassifierRecipe read_classifier(RecipeTable data, RecipeTable model, const std::filesystem::path& folder) {
  ClassifierRecipe out;
  out.data = read_data(std::move(data), folder);
  out.model = read_model(model);
  out.initialisation = read_initialisation(model, "normal", 0);
  model.finish();
  return out;
}

TrainRecipe read_classifier_training(RecipeTable table, const ClassifierRecipe& recipe) {
  TrainRecipe out = read_training(table, recipe.model.width);
  out.batch = table.integer("batch", 64, 1, 1 << 20);
  out.best = metric_named(table.text("best", "accuracy"));
  if (out.best != Metric::accuracy && out.best != Metric::loss)
    throw std::invalid_argument(table.place("best") + " is \"" + metric_name(out.best) +
                                "\"; validations of pictures measure accuracy and loss");
  table.finish();
  return out;
}

}  // namespace regard::train
