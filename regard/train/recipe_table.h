// A TOML table that is read strictly: each key by name, type and range, and none left over.
#pragma once

#include <toml++/toml.h>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace regard::train {

class RecipeTable {
 public:
  // name: "" for the file itself, else "train" and the like. Borrows the table, which may be null: every key
  // is absent.
  RecipeTable(const toml::table* table, std::string name, std::string source);

  // All throw std::invalid_argument for another type or a value out of range.
  int64_t integer(const std::string& key, int64_t otherwise, int64_t least, int64_t most);
  double number(const std::string& key, double otherwise, double least, double most);
  bool flag(const std::string& key, bool otherwise);
  std::string text(const std::string& key, const std::string& otherwise);
  std::vector<std::string> texts(const std::string& key);  // one text or several
  RecipeTable table(const std::string& key);
  // Whether the key is there.
  bool has(const std::string& key) { return find(key) != nullptr; }

  // Throws std::invalid_argument for a key that nobody has asked for, with the nearest one that somebody has.
  void finish() const;
  // Of this table: "recipe.toml: train.steps".
  std::string place(const std::string& key) const;

 private:
  const toml::node* find(const std::string& key);

  const toml::table* table_;
  std::string name_;
  std::string source_;
  std::set<std::string> asked_;
};

}  // namespace regard::train
