// The tables of `kind = "language_model"`.
#include <stdexcept>
#include <string>
#include <utility>

#include "regard/train/recipe_parts.h"

namespace regard::train {
namespace {

TextRecipe read_data(RecipeTable table, const std::filesystem::path& folder) {
  TextRecipe out;
  out.train = read_paths(table, "train", folder);
  out.valid = read_paths(table, "valid", folder);
  out.tokenizer = table.text("tokenizer", out.tokenizer);
  table.finish();
  if (out.train.empty())
    throw std::invalid_argument(table.place("train") + " is missing: a text or a list of them");
  return out;
}

DecoderRecipe read_model(RecipeTable table) {
  DecoderRecipe out;
  out.layers = table.integer("layers", out.layers, 1, 1000);
  out.width = table.integer("width", out.width, 2, 1 << 16);
  out.heads = table.integer("heads", out.heads, 1, 1 << 12);
  out.kv_heads = table.integer("kv_heads", out.kv_heads, 0, 1 << 12);
  out.feed_forward = table.integer("feed_forward", out.feed_forward, 0, 1 << 18);
  out.window = table.integer("window", out.window, 0, 1 << 30);
  out.rope_base = table.number("rope_base", out.rope_base, 1, 1e9);
  out.tied = table.flag("tied", out.tied);
  out.initialisation = read_initialisation(table, "normal", out.layers);
  table.finish();
  const auto shown = [&](const char* key, int64_t value) {
    return table.place(key) + " is " + std::to_string(value);
  };
  if (out.kv_heads == 0) out.kv_heads = out.heads;
  if (out.width % out.heads != 0 || out.width / out.heads % 2 != 0) {
    throw std::invalid_argument(shown("heads", out.heads) + "; width (" + std::to_string(out.width) +
                                ") must be an even multiple of it, because positions turn pairs");
  }
  if (out.heads % out.kv_heads != 0) {
    throw std::invalid_argument(shown("kv_heads", out.kv_heads) + "; heads (" + std::to_string(out.heads) +
                                ") must be a multiple of it");
  }
  if (out.feed_forward == 0) out.feed_forward = (out.width * 8 / 3 + 31) / 32 * 32;
  return out;
}

}  // namespace

LanguageModelRecipe read_language_model(RecipeTable data, RecipeTable model,
                                        const std::filesystem::path& folder) {
  return {.data = read_data(std::move(data), folder), .model = read_model(std::move(model))};
}

TrainRecipe read_language_model_training(RecipeTable table, int64_t width) {
  TrainRecipe out = read_training(table, width);
  out.length = table.integer("length", out.length, 1, 1 << 20);
  out.batch = table.integer("batch", out.batch, 1, 1 << 20);
  out.validation_pieces = table.integer("validation_pieces", out.validation_pieces, 0, kManySteps);
  table.finish();
  return out;
}

}  // namespace regard::train
