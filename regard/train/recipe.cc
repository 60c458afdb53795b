#include "regard/train/recipe.h"

#include <sstream>
#include <stdexcept>
#include <utility>

#include "regard/io/error.h"
#include "regard/io/mapped_file.h"
#include "regard/train/recipe_parts.h"
#include "regard/train/recipe_table.h"

namespace regard::train {
namespace {

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

}  // namespace

Recipe read_recipe(const std::filesystem::path& path, const std::vector<std::string>& settings) {
  toml::table table = parse(io::MappedFile::open(path).text(), path.string());
  for (const std::string& setting : settings) merge(table, parse_setting(setting));

  Recipe out;
  RecipeTable all(&table, "", path.string());
  const std::string kind = all.text("kind", "language_model");
  if (kind == "language_model") {
    const LanguageModelRecipe& read = out.task.emplace<LanguageModelRecipe>(
        read_language_model(all.table("data"), all.table("model"), path.parent_path()));
    out.train = read_language_model_training(all.table("train"), read);
  } else if (kind == "translator") {
    const TranslatorRecipe& read = out.task.emplace<TranslatorRecipe>(
        read_translator(all.table("data"), all.table("model"), path.parent_path()));
    out.train = read_translator_training(all.table("train"), read);
  } else if (kind == "classifier") {
    const ClassifierRecipe& read = out.task.emplace<ClassifierRecipe>(
        read_classifier(all.table("data"), all.table("model"), path.parent_path()));
    out.train = read_classifier_training(all.table("train"), read);
  } else {
    throw std::invalid_argument(all.place("kind") + " is \"" + kind +
                                "\"; known are \"language_model\", \"translator\", \"classifier\"");
  }
  all.finish();
  // What may change when a training goes on is no part of what it is.
  if (toml::table* train = table["train"].as_table()) {
    for (const char* key : {"steps", "save_every", "keep", "patience", "rate", "warmup", "clip"})
      train->erase(key);
  }
  std::ostringstream canonical;  // keys of TOML tables are sorted
  canonical << table;
  out.canonical = canonical.str();
  return out;
}

}  // namespace regard::train
