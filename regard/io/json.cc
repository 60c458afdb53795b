#include "regard/io/json.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "regard/io/error.h"
#include "regard/io/json_events.h"
#include "regard/io/mapped_file.h"

namespace regard::io {
namespace {

// Builds the tree; a key that comes twice in one object is an error.
class TreeBuilder final : public JsonEvents {
 public:
  using JsonEvents::JsonEvents;
  Json root;

 private:
  void on_null() override { add(nullptr); }
  void on_bool(bool value) override { add(value); }
  void on_integer(int64_t value) override { add(value); }
  void on_unsigned(uint64_t value) override { add(value); }
  void on_float(double value) override { add(value); }
  void on_string(std::string& value) override { add(std::move(value)); }
  void on_key(std::string& value) override {
    auto& fields = open_.back()->get_ref<Json::object_t&>();
    const auto [field, inserted] = fields.try_emplace(value);
    if (!inserted) refuse("field " + io::quoted(value) + " is given twice");
    slot_ = &field->second;
  }
  void on_object_begin() override { open_.push_back(&add(Json::object())); }
  void on_object_end() override { open_.pop_back(); }
  void on_array_begin() override { open_.push_back(&add(Json::array())); }
  void on_array_end() override { open_.pop_back(); }

  Json& add(Json value) {
    if (open_.empty()) return root = std::move(value);
    if (open_.back()->is_object()) return *slot_ = std::move(value);
    auto& elements = open_.back()->get_ref<Json::array_t&>();
    return elements.emplace_back(std::move(value));
  }

  // Only the last element of an array is ever open, so growing an array moves no open container.
  std::vector<Json*> open_;
  Json* slot_ = nullptr;
};

[[noreturn]] void refuse(std::string_view source, std::string_view field, const Json* value,
                         const std::string& allowed) {
  const std::string got = value == nullptr ? "is missing" : "is " + describe(*value);
  const std::string what = "field " + io::quoted(field) + " " + got + "; it must be " + allowed;
  if (source.empty()) throw Error(what);
  fail(source, what);
}

std::string number_text(double value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

int64_t as_int(const Json* value, std::string_view field, int64_t lowest, int64_t highest,
               std::string_view source) {
  const std::string allowed =
      "a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest);
  if (value == nullptr || !value->is_number_integer()) refuse(source, field, value, allowed);
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    refuse(source, field, value, allowed);
  }
  const auto number = value->get<int64_t>();
  if (number < lowest || number > highest) refuse(source, field, value, allowed);
  return number;
}

double as_number(const Json* value, std::string_view field, double lowest, double highest,
                 std::string_view source) {
  const std::string allowed = "a number from " + number_text(lowest) + " to " + number_text(highest);
  if (value == nullptr || !value->is_number()) refuse(source, field, value, allowed);
  const auto number = value->get<double>();
  if (!(number >= lowest && number <= highest)) refuse(source, field, value, allowed);
  return number;
}

}  // namespace

Json parse_json(std::string_view text, const std::string& source) {
  TreeBuilder builder(text, source);
  builder.run();
  return std::move(builder.root);
}

Json read_json(const std::filesystem::path& path) {
  const MappedFile file = MappedFile::open(path);
  return parse_json(file.text(), file.path());
}

const Json* find_field(const Json& object, std::string_view field, std::string_view source) {
  if (!object.is_object()) {
    const std::string what =
        "field " + io::quoted(field) + " is asked of " + describe(object) + "; an object was expected";
    if (source.empty()) throw Error(what);
    fail(source, what);
  }
  const auto found = object.find(field);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

int64_t require_int(const Json& object, std::string_view field, int64_t lowest, int64_t highest,
                    std::string_view source) {
  return as_int(find_field(object, field, source), field, lowest, highest, source);
}

double require_number(const Json& object, std::string_view field, double lowest, double highest,
                      std::string_view source) {
  return as_number(find_field(object, field, source), field, lowest, highest, source);
}

bool require_bool(const Json& object, std::string_view field, std::string_view source) {
  const Json* value = find_field(object, field, source);
  if (value == nullptr || !value->is_boolean()) refuse(source, field, value, "true or false");
  return value->get<bool>();
}

const std::string& require_string(const Json& object, std::string_view field, std::string_view source) {
  const Json* value = find_field(object, field, source);
  if (value == nullptr || !value->is_string()) refuse(source, field, value, "a string");
  return value->get_ref<const std::string&>();
}

const Json& require_object(const Json& object, std::string_view field, std::string_view source) {
  const Json* value = find_field(object, field, source);
  if (value == nullptr || !value->is_object()) refuse(source, field, value, "an object");
  return *value;
}

const Json& require_array(const Json& object, std::string_view field, std::string_view source) {
  const Json* value = find_field(object, field, source);
  if (value == nullptr || !value->is_array()) refuse(source, field, value, "an array");
  return *value;
}

int64_t int_or(const Json& object, std::string_view field, int64_t fallback, int64_t lowest, int64_t highest,
               std::string_view source) {
  const Json* value = find_field(object, field, source);
  return value == nullptr ? fallback : as_int(value, field, lowest, highest, source);
}

double number_or(const Json& object, std::string_view field, double fallback, double lowest, double highest,
                 std::string_view source) {
  const Json* value = find_field(object, field, source);
  return value == nullptr ? fallback : as_number(value, field, lowest, highest, source);
}

bool bool_or(const Json& object, std::string_view field, bool fallback, std::string_view source) {
  return find_field(object, field, source) == nullptr ? fallback : require_bool(object, field, source);
}

std::string string_or(const Json& object, std::string_view field, std::string_view fallback,
                      std::string_view source) {
  if (find_field(object, field, source) == nullptr) return std::string(fallback);
  return require_string(object, field, source);
}

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::string:
      return io::quoted(value.get_ref<const std::string&>(), 48);
    case Json::value_t::object:
      return "an object of " + std::to_string(value.size()) + " fields";
    case Json::value_t::array:
      return "an array of " + std::to_string(value.size()) + " values";
    default:
      return value.dump();
  }
}

}  // namespace regard::io
