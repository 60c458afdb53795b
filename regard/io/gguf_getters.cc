// The typed getters of GGUF metadata: what the key holds, or one sentence on what it should hold.
#include <cstring>
#include <optional>

#include "regard/io/error.h"
#include "regard/io/gguf.h"

namespace regard::io {
namespace {

std::string allowed_range(int64_t lowest, int64_t highest) {
  return "a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest);
}

template <class T>
T element(const GgufValue& value, uint64_t index) {
  T result;
  std::memcpy(&result, value.bytes.data() + index * sizeof(T), sizeof(T));
  return result;
}

// Nothing where the type is no integer or the number does not fit.
std::optional<int64_t> integer_at(const GgufValue& value, uint64_t index) {
  switch (value.type) {
    case GgufType::u8:
      return element<uint8_t>(value, index);
    case GgufType::i8:
      return element<int8_t>(value, index);
    case GgufType::u16:
      return element<uint16_t>(value, index);
    case GgufType::i16:
      return element<int16_t>(value, index);
    case GgufType::u32:
      return element<uint32_t>(value, index);
    case GgufType::i32:
      return element<int32_t>(value, index);
    case GgufType::i64:
      return element<int64_t>(value, index);
    case GgufType::u64: {
      const auto number = element<uint64_t>(value, index);
      if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(number);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> float_at(const GgufValue& value, uint64_t index) {
  if (value.type == GgufType::f32) return element<float>(value, index);
  if (value.type == GgufType::f64) return element<double>(value, index);
  return std::nullopt;
}

std::string type_text(const GgufValue& value) {
  const std::string name(gguf_type_name(value.type));
  return value.is_array ? "an array of " + std::to_string(value.count) + " " + name : "of type " + name;
}

[[noreturn]] void refuse(const std::string& source, std::string_view key, const std::string& got,
                         std::string_view allowed) {
  fail(source, "key " + io::quoted(key) + " " + got + "; it must be " + std::string(allowed));
}

}  // namespace

const GgufValue* Gguf::value(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

const GgufValue& Gguf::typed(std::string_view key, bool array, std::string_view allowed) const {
  const GgufValue* found = value(key);
  if (found == nullptr) refuse(source_, key, "is missing", allowed);
  if (found->is_array != array) refuse(source_, key, "is " + type_text(*found), allowed);
  return *found;
}

int64_t Gguf::require_int(std::string_view key, int64_t lowest, int64_t highest) const {
  const std::string allowed = allowed_range(lowest, highest);
  const GgufValue& found = typed(key, false, allowed);
  const auto number = integer_at(found, 0);
  if (!number) refuse(source_, key, "is " + type_text(found), allowed);
  if (*number < lowest || *number > highest) refuse(source_, key, "is " + std::to_string(*number), allowed);
  return *number;
}

double Gguf::require_float(std::string_view key) const {
  const GgufValue& found = typed(key, false, "of type FLOAT32 or FLOAT64");
  const auto number = float_at(found, 0);
  if (!number) refuse(source_, key, "is " + type_text(found), "of type FLOAT32 or FLOAT64");
  return *number;
}

bool Gguf::require_bool(std::string_view key) const {
  const GgufValue& found = typed(key, false, "of type BOOL");
  if (found.type != GgufType::boolean) refuse(source_, key, "is " + type_text(found), "of type BOOL");
  return found.bytes[0] != std::byte{0};
}

std::string_view Gguf::require_string(std::string_view key) const {
  const GgufValue& found = typed(key, false, "of type STRING");
  if (found.type != GgufType::string) refuse(source_, key, "is " + type_text(found), "of type STRING");
  return found.strings[0];
}

const std::vector<std::string_view>& Gguf::require_strings(std::string_view key) const {
  const GgufValue& found = typed(key, true, "an array of STRING");
  if (found.type != GgufType::string) refuse(source_, key, "is " + type_text(found), "an array of STRING");
  return found.strings;
}

std::vector<int64_t> Gguf::require_ints(std::string_view key, int64_t lowest, int64_t highest) const {
  const std::string allowed = allowed_range(lowest, highest);
  const GgufValue& found = typed(key, true, "an array; each entry " + allowed);
  if (found.type == GgufType::f32 || found.type == GgufType::f64 || found.type == GgufType::boolean ||
      found.type == GgufType::string) {
    refuse(source_, key, "is " + type_text(found), "an array of an integer type");
  }
  std::vector<int64_t> numbers(found.count);
  for (uint64_t i = 0; i < found.count; ++i) {
    const auto number = integer_at(found, i);
    if (!number || *number < lowest || *number > highest) {
      const std::string got = number ? std::to_string(*number) : "more than 2^63-1";
      refuse(source_, key, "has " + got + " at index " + std::to_string(i), allowed);
    }
    numbers[i] = *number;
  }
  return numbers;
}

std::vector<float> Gguf::require_floats(std::string_view key) const {
  const GgufValue& found = typed(key, true, "an array of FLOAT32 or FLOAT64");
  std::vector<float> numbers;
  numbers.reserve(found.count);
  for (uint64_t i = 0; i < found.count; ++i) {
    const auto number = float_at(found, i);
    if (!number) refuse(source_, key, "is " + type_text(found), "an array of FLOAT32 or FLOAT64");
    numbers.push_back(static_cast<float>(*number));
  }
  return numbers;
}

int64_t Gguf::int_or(std::string_view key, int64_t fallback, int64_t lowest, int64_t highest) const {
  return has(key) ? require_int(key, lowest, highest) : fallback;
}

double Gguf::float_or(std::string_view key, double fallback) const {
  return has(key) ? require_float(key) : fallback;
}

bool Gguf::bool_or(std::string_view key, bool fallback) const {
  return has(key) ? require_bool(key) : fallback;
}

std::string_view Gguf::string_or(std::string_view key, std::string_view fallback) const {
  return has(key) ? require_string(key) : fallback;
}

}  // namespace regard::io
