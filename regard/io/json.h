// JSON from strangers: bounded depth, no duplicate keys, no byte order mark, and getters that say what was
// expected.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace regard::io {

using Json = nlohmann::json;

inline constexpr int kMaxJsonDepth = 64;

// Throws Error: one sentence with `source`, what is wrong and the byte position.
Json parse_json(std::string_view text, const std::string& source);
// Reads and parses a file.
Json read_json(const std::filesystem::path& path);

// Getters of a field of an object. Error names the source, the field, what it holds and what is allowed.
// Whole numbers must be written as such (12, not 12.0 or "12"). Ends of ranges are allowed values.
int64_t require_int(const Json& object, std::string_view field, int64_t lowest, int64_t highest,
                    std::string_view source = {});
double require_number(const Json& object, std::string_view field, double lowest, double highest,
                      std::string_view source = {});
bool require_bool(const Json& object, std::string_view field, std::string_view source = {});
const std::string& require_string(const Json& object, std::string_view field, std::string_view source = {});
const Json& require_object(const Json& object, std::string_view field, std::string_view source = {});
const Json& require_array(const Json& object, std::string_view field, std::string_view source = {});

// The same with a value for a field that is absent or null.
int64_t int_or(const Json& object, std::string_view field, int64_t fallback, int64_t lowest, int64_t highest,
               std::string_view source = {});
double number_or(const Json& object, std::string_view field, double fallback, double lowest, double highest,
                 std::string_view source = {});
bool bool_or(const Json& object, std::string_view field, bool fallback, std::string_view source = {});
std::string string_or(const Json& object, std::string_view field, std::string_view fallback,
                      std::string_view source = {});

// The field's value, or null where it is absent or JSON null. Throws Error where `object` is not an object.
const Json* find_field(const Json& object, std::string_view field, std::string_view source = {});

// A short form of a value for a message: at most about 60 characters, a container only by kind and size.
std::string describe(const Json& value);

}  // namespace regard::io
