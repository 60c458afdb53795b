#include "regard/train/recipe_table.h"

#include <sstream>
#include <stdexcept>
#include <utility>

#include "regard/io/suggest.h"

namespace regard::train {
namespace {

template <class T>
std::string shown(T value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

template <class T>
T in_range(const std::string& place, T value, T least, T most) {
  if (!(value >= least && value <= most)) {
    throw std::invalid_argument(place + " is " + shown(value) + "; allowed is " + shown(least) + " to " +
                                shown(most));
  }
  return value;
}

}  // namespace

RecipeTable::RecipeTable(const toml::table* table, std::string name, std::string source)
    : table_(table), name_(std::move(name)), source_(std::move(source)) {}

std::string RecipeTable::place(const std::string& key) const {
  return source_ + ": " + (name_.empty() ? key : name_ + "." + key);
}

const toml::node* RecipeTable::find(const std::string& key) {
  asked_.insert(key);
  return table_ == nullptr ? nullptr : table_->get(key);
}

int64_t RecipeTable::integer(const std::string& key, int64_t otherwise, int64_t least, int64_t most) {
  const toml::node* node = find(key);
  if (node == nullptr) return otherwise;
  const auto value = node->value_exact<int64_t>();
  if (!value) throw std::invalid_argument(place(key) + " must be a whole number");
  return in_range(place(key), *value, least, most);
}

double RecipeTable::number(const std::string& key, double otherwise, double least, double most) {
  const toml::node* node = find(key);
  if (node == nullptr) return otherwise;
  const auto whole = node->value_exact<int64_t>();
  const auto value = whole ? std::optional<double>(static_cast<double>(*whole)) : node->value_exact<double>();
  if (!value) throw std::invalid_argument(place(key) + " must be a number");
  return in_range(place(key), *value, least, most);
}

bool RecipeTable::flag(const std::string& key, bool otherwise) {
  const toml::node* node = find(key);
  if (node == nullptr) return otherwise;
  const auto value = node->value_exact<bool>();
  if (!value) throw std::invalid_argument(place(key) + " must be true or false");
  return *value;
}

std::string RecipeTable::text(const std::string& key, const std::string& otherwise) {
  const toml::node* node = find(key);
  if (node == nullptr) return otherwise;
  const auto value = node->value_exact<std::string>();
  if (!value) throw std::invalid_argument(place(key) + " must be a text in quotes");
  return *value;
}

std::vector<std::string> RecipeTable::texts(const std::string& key) {
  const toml::node* node = find(key);
  std::vector<std::string> out;
  if (node == nullptr) return out;
  const auto wrong = [&] {
    return std::invalid_argument(place(key) + " must be a text in quotes or a list of them");
  };
  if (const toml::array* list = node->as_array()) {
    for (const toml::node& entry : *list) {
      const auto value = entry.value_exact<std::string>();
      if (!value) throw wrong();
      out.push_back(*value);
    }
    return out;
  }
  const auto value = node->value_exact<std::string>();
  if (!value) throw wrong();
  return {*value};
}

RecipeTable RecipeTable::table(const std::string& key) {
  const toml::node* node = find(key);
  if (node != nullptr && node->as_table() == nullptr) {
    throw std::invalid_argument(place(key) + " must be a table, [" + key + "]");
  }
  return {node == nullptr ? nullptr : node->as_table(), name_.empty() ? key : name_ + "." + key, source_};
}

void RecipeTable::finish() const {
  if (table_ == nullptr) return;
  for (const auto& [key, node] : *table_) {
    const std::string name(key.str());
    if (asked_.count(name) > 0) continue;
    const std::string near = io::suggest(name, {asked_.begin(), asked_.end()});
    std::string known;
    for (const std::string& other : asked_) known += (known.empty() ? "" : ", ") + other;
    throw std::invalid_argument(place(name) + " is not known; " +
                                (near.empty() ? "known are " + known : "did you mean " + near + "?"));
  }
}

}  // namespace regard::train
