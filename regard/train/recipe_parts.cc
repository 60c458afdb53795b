#include "regard/train/recipe_parts.h"

#include <cmath>

#include "regard/train/names.h"

namespace regard::train {
namespace {

constexpr Name<bool> kPrecisions[] = {{"f32", false}, {"bf16", true}};

}  // namespace

std::vector<std::filesystem::path> read_paths(RecipeTable& table, const std::string& key,
                                              const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  for (const std::string& name : table.texts(key)) out.push_back(folder / name);
  return out;
}

void read_generated(RecipeTable& table, GeneratedTask& task, int64_t& train, int64_t& valid) {
  task.kind = generated_named(table.text("task", ""));
  task.symbols = table.integer("symbols", task.symbols, 1, 1 << 20);
  task.longest = table.integer("length", task.longest, 1, 1 << 16);
  task.shortest = table.integer("shortest", task.longest, 1, task.longest);
  task.seed = read_seed(table);
  train = table.integer("texts", 32000, 1, 1 << 30);
  valid = table.integer("valid_texts", 500, 0, 1 << 30);
}

uint64_t read_seed(RecipeTable& table) {
  return static_cast<uint64_t>(table.integer("seed", kSeed, 0, INT64_MAX));
}

Initialisation read_initialisation(RecipeTable& table, const std::string& otherwise, int64_t layers) {
  Initialisation out;
  out.kind = initialisation_named(table.text("initialisation", otherwise));
  out.deviation = table.number("deviation", out.deviation, 0, 10);
  out.residual_divisor =
      layers > 0 && table.flag("scale_residual", true) ? std::sqrt(2.0 * static_cast<double>(layers)) : 1.0;
  return out;
}

TrainRecipe read_training(RecipeTable& table, int64_t width) {
  TrainRecipe out;
  out.seed = read_seed(table);
  out.steps = table.integer("steps", out.steps, 1, kManySteps);
  out.accumulate = table.integer("accumulate", out.accumulate, 1, 1 << 20);
  OptimizerOptions& optimizer = out.optimizer;
  optimizer.kind = optimizer_named(table.text("optimizer", "adamw"));
  optimizer.beta1 = table.number("beta1", optimizer.beta1, 0, 0.999999);
  optimizer.beta2 = table.number("beta2", optimizer.beta2, 0, 0.999999);
  optimizer.epsilon = table.number("epsilon", optimizer.epsilon, 0, 1);
  optimizer.weight_decay = table.number("weight_decay", optimizer.weight_decay, 0, 10);
  optimizer.momentum = table.number("momentum", optimizer.momentum, 0, 0.999999);
  Schedule& schedule = out.schedule;
  schedule.kind = schedule_named(table.text("schedule", "cosine"));
  schedule.rate = table.number("rate", schedule.rate, 0, 100);
  schedule.warmup = table.integer("warmup", schedule.warmup, 0, kManySteps);
  schedule.final_share = table.number("final_share", schedule.final_share, 0, 1);
  schedule.steps = out.steps;
  schedule.width = width;
  out.clip = table.number("clip", out.clip, 0, 1e9);
  out.bf16 = kind_named(table.place("precision").c_str(), table.text("precision", "f32"), kPrecisions);
  out.checkpoint_layers = table.flag("checkpoint_layers", out.checkpoint_layers);
  out.label_smoothing = table.number("label_smoothing", out.label_smoothing, 0, 0.999);
  out.validate_every = table.integer("validate_every", out.validate_every, 1, kManySteps);
  out.alarm_after = table.integer("alarm_after", out.alarm_after, 0, kManySteps);
  out.patience = table.integer("patience", out.patience, 0, kManySteps);
  out.save_every = table.integer("save_every", out.save_every, 1, kManySteps);
  out.keep = table.integer("keep", out.keep, 1, 1 << 20);
  return out;
}

}  // namespace regard::train
