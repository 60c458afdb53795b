#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace regard::model {

// What matrix products are made with: float32, or weights of few bits with inputs rounded to int8.
enum class Precision : uint8_t { f32, int8 };

inline std::string_view name(Precision precision) {
  return precision == Precision::int8 ? "int8" : "f32";
}

struct LoadOptions {
  // Empty: int8 for a file whose weights are quantised blocks, else f32.
  std::optional<Precision> precision = Precision::f32;
};

}  // namespace regard::model
