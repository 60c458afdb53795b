#include "regard/train/recipe.h"

#include <cmath>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "regard/io/error.h"
#include "regard/io/mapped_file.h"
#include "regard/train/recipe_table.h"

namespace regard::train {
namespace {

constexpr int64_t kManySteps = int64_t{1} << 40;

toml::table parse(std::string_view text, const std::string& source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    std::ostringstream what;
    what << source << ", line " << error.source().begin.line << ": " << error.description();
    throw std::invalid_argument(what.str());
  }
}

// `over` wins, table by table.
void merge(toml::table& into, const toml::table& over) {
  for (const auto& [key, node] : over) {
    toml::table* below = into[key].as_table();
    if (below != nullptr && node.is_table()) {
      merge(*below, *node.as_table());
    } else {
      into.insert_or_assign(key, node);
    }
  }
}

// "train.steps=100"; a value that is no TOML is a text: "data.tokenizer=bytes".
toml::table parse_setting(const std::string& setting) {
  const auto equals = setting.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw std::invalid_argument("--set takes key=value, such as train.steps=100, not \"" + setting + "\"");
  }
  const std::string key = setting.substr(0, equals);
  const std::string value = setting.substr(equals + 1);
  try {
    return toml::parse(key + " = " + value);
  } catch (const toml::parse_error&) {
    std::string quoted;
    for (const char c : value) quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return parse(key + " = \"" + quoted + "\"", "--set " + setting);
  }
}

DataRecipe read_data(RecipeTable table, const std::filesystem::path& folder) {
  DataRecipe out;
  const auto paths = [&](const char* key) {
    std::vector<std::filesystem::path> found;
    for (const std::string& name : table.texts(key)) found.push_back(folder / name);
    return found;
  };
  out.train = paths("train");
  out.valid = paths("valid");
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
  out.initialisation.kind = initialisation_named(table.text("initialisation", "normal"));
  out.initialisation.deviation = table.number("deviation", out.initialisation.deviation, 0, 10);
  out.initialisation.residual_divisor =
      table.flag("scale_residual", true) ? std::sqrt(2.0 * static_cast<double>(out.layers)) : 1.0;
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

TrainRecipe read_train(RecipeTable table, int64_t width) {
  TrainRecipe out;
  out.seed = static_cast<uint64_t>(table.integer("seed", 1, 0, INT64_MAX));
  out.steps = table.integer("steps", out.steps, 1, kManySteps);
  out.length = table.integer("length", out.length, 1, 1 << 20);
  out.batch = table.integer("batch", out.batch, 1, 1 << 20);
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
  out.label_smoothing = table.number("label_smoothing", out.label_smoothing, 0, 0.999);
  out.validate_every = table.integer("validate_every", out.validate_every, 1, kManySteps);
  out.validation_pieces = table.integer("validation_pieces", out.validation_pieces, 0, kManySteps);
  out.patience = table.integer("patience", out.patience, 0, kManySteps);
  out.save_every = table.integer("save_every", out.save_every, 1, kManySteps);
  out.keep = table.integer("keep", out.keep, 1, 1 << 20);
  table.finish();
  return out;
}

}  // namespace

Recipe read_recipe(const std::filesystem::path& path, const std::vector<std::string>& settings) {
  const io::MappedFile file = io::MappedFile::open(path);
  const auto bytes = file.bytes();
  toml::table table = parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
  for (const std::string& setting : settings) merge(table, parse_setting(setting));

  Recipe out;
  RecipeTable all(&table, "", path.string());
  const std::string kind = all.text("kind", "language_model");
  if (kind != "language_model") {
    throw std::invalid_argument(all.place("kind") + " is \"" + kind + "\"; known is \"language_model\"");
  }
  out.data = read_data(all.table("data"), path.parent_path());
  out.model = read_model(all.table("model"));
  out.train = read_train(all.table("train"), out.model.width);
  all.finish();
  // What may change when a training goes on is no part of what it is.
  if (toml::table* train = table["train"].as_table()) {
    for (const char* key : {"steps", "save_every", "keep", "patience"}) train->erase(key);
  }
  std::ostringstream canonical;  // keys of TOML tables are sorted
  canonical << table;
  out.canonical = canonical.str();
  return out;
}

}  // namespace regard::train
