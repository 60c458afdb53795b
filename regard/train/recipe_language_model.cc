// The tables of `kind = "language_model"`.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "regard/train/names.h"
#include "regard/train/recipe_parts.h"

namespace regard::train {
namespace {

// data.task: texts that are made up.
void read_task(RecipeTable& table, TextRecipe& out) {
  if (table.text("task", "") != kZipfMarkov)
    return read_generated(table, out.task.emplace(), out.generated_train, out.generated_valid);
  ZipfMarkov& language = out.generated.emplace();
  language.items = table.integer("items", language.items, 2, 1 << 24);
  language.classes = table.integer("classes", language.classes, 1, 1 << 10);
  language.successors = table.integer("successors", language.successors, 1, 1 << 10);
  language.noise = table.number("noise", language.noise, 0, 1);
  language.seed = read_seed(table);
  out.generated_train = table.integer("tokens", 1'000'000, 2, 1 << 30);
  out.generated_valid = table.integer("valid_tokens", 20'000, 0, 1 << 30);
}

TextRecipe read_data(RecipeTable table, const std::filesystem::path& folder) {
  TextRecipe out;
  if (table.has("task")) {
    read_task(table, out);
    table.finish();
    return out;
  }
  out.train = read_paths(table, "train", folder);
  out.valid = read_paths(table, "valid", folder);
  out.documents = table.text("documents", out.documents);
  out.tokenizer = table.text("tokenizer", out.tokenizer);
  table.finish();
  if (out.train.empty())
    throw std::invalid_argument(table.place("train") + " is missing: a text or a list of them");
  return out;
}

constexpr Name<DecoderRecipe::Head> kHeads[] = {{"full", DecoderRecipe::Head::full},
                                                {"adaptive", DecoderRecipe::Head::adaptive},
                                                {"hierarchical", DecoderRecipe::Head::hierarchical}};

// Llama 3.1's: rope_factor with the lengths that it stretches between.
void read_rope_scaling(RecipeTable& table, layer::RopeScaling& out) {
  out.factor = table.number("rope_factor", 1, 1, 1e6);
  out.low_frequency_factor = table.number("rope_low", out.low_frequency_factor, 1e-3, 1e6);
  out.high_frequency_factor = table.number("rope_high", out.high_frequency_factor, 1e-3, 1e6);
  out.original_length = table.integer("rope_original_length", out.original_length, 1, 1 << 30);
  if (out.factor > 1) out.kind = layer::RopeScaling::Kind::llama3;
  if (!(out.high_frequency_factor > out.low_frequency_factor))
    throw std::invalid_argument(table.place("rope_high") + " must be above rope_low");
}

DecoderRecipe read_model(RecipeTable table) {
  DecoderRecipe out;
  out.layers = table.integer("layers", out.layers, 1, 1000);
  out.width = table.integer("width", out.width, 2, 1 << 16);
  out.heads = table.integer("heads", out.heads, 1, 1 << 12);
  out.kv_heads = table.integer("kv_heads", out.kv_heads, 0, 1 << 12);
  out.feed_forward = table.integer("feed_forward", out.feed_forward, 0, 1 << 18);
  out.window = table.integer("window", out.window, 0, 1 << 30);
  out.positions = table.integer("positions", out.positions, 0, 1 << 20);
  out.rope_base = table.number("rope_base", out.rope_base, 1, 1e9);
  read_rope_scaling(table, out.rope_scaling);
  out.tied = table.flag("tied", out.tied);
  out.dropout = table.number("dropout", out.dropout, 0, 0.99);
  out.experts = table.integer("experts", out.experts, 0, 1 << 10);
  out.experts_chosen = table.integer("experts_chosen", out.experts_chosen, 1, 1 << 10);
  out.latent_rank = table.integer("latent_rank", out.latent_rank, 0, 1 << 16);
  out.latent_query_rank = table.integer("latent_query_rank", out.latent_query_rank, 0, 1 << 16);
  out.latent_rope = table.integer("latent_rope", out.latent_rope, 0, 1 << 12);
  out.head = kind_named(table.place("head").c_str(), table.text("head", "full"), kHeads);
  out.head_division = table.number("head_division", out.head_division, 1, 64);
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
  if (out.experts > 0 && out.experts_chosen > out.experts) {
    throw std::invalid_argument(shown("experts_chosen", out.experts_chosen) + "; there are " +
                                std::to_string(out.experts) + " experts");
  }
  if (out.latent_rank > 0) {
    if (out.latent_rope == 0) out.latent_rope = std::max<int64_t>(2, out.width / out.heads / 4 * 2);
    if (out.latent_rope % 2 != 0)
      throw std::invalid_argument(shown("latent_rope", out.latent_rope) + "; it must be even");
    if (out.window > 0 || out.kv_heads != out.heads)
      throw std::invalid_argument(shown("latent_rank", out.latent_rank) +
                                  "; latent attention has no window and no kv_heads of its own");
    if (out.experts > 0 && out.head == DecoderRecipe::Head::full)
      throw std::invalid_argument(shown("latent_rank", out.latent_rank) + "; with experts it is not known");
  }
  if (out.feed_forward == 0) out.feed_forward = (out.width * 8 / 3 + 31) / 32 * 32;
  return out;
}

// What goes together only in some ways, over both tables.
void check(const DecoderRecipe& model, const TrainRecipe& train) {
  if (train.label_smoothing > 0 && model.head != DecoderRecipe::Head::full)
    throw std::invalid_argument("train.label_smoothing is set; only model.head = \"full\" takes it");
  if (model.positions > 0 && model.positions < train.length)
    throw std::invalid_argument("model.positions is " + std::to_string(model.positions) +
                                "; a piece of training has " + std::to_string(train.length) +
                                " (train.length)");
  if (train.bf16 && (model.experts > 0 || model.latent_rank > 0))
    throw std::invalid_argument(
        "train.precision is \"bf16\"; mixtures of experts and latent attention are trained in f32 only");
}

}  // namespace

LanguageModelRecipe read_language_model(RecipeTable data, RecipeTable model,
                                        const std::filesystem::path& folder) {
  return {.data = read_data(std::move(data), folder), .model = read_model(std::move(model))};
}

TrainRecipe read_language_model_training(RecipeTable table, const LanguageModelRecipe& recipe) {
  TrainRecipe out = read_training(table, recipe.model.width);
  out.length = table.integer("length", out.length, 1, 1 << 20);
  out.batch = table.integer("batch", out.batch, 1, 1 << 20);
  out.validation_pieces = table.integer("validation_pieces", out.validation_pieces, 0, kManySteps);
  out.balance = table.number("balance", out.balance, 0, 100);
  out.diversity = table.number("diversity", out.diversity, -1e6, 1e6);
  out.best = metric_named(table.text("best", recipe.data.task ? "accuracy" : "loss"));
  if (out.best != Metric::loss && !(out.best == Metric::accuracy && recipe.data.task))
    throw std::invalid_argument(table.place("best") + " is \"" + metric_name(out.best) +
                                "\"; of language models validations measure loss, of tasks also accuracy");
  table.finish();
  check(recipe.model, out);
  return out;
}

}  // namespace regard::train
