#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "regard/model/precision.h"

namespace regard::cli {

// --precision f32|int8; `otherwise` says what happens without it.
inline void add_precision(CLI::App& verb, std::string& precision, const std::string& otherwise) {
  verb.add_option(
          "--precision", precision,
          "Matrix products in f32, or in int8: weights as the file's blocks hold them (or rounded to 7 "
          "bits), inputs rounded to 8 (default: " +
              otherwise + ")")
      ->check(CLI::IsMember({"f32", "int8"}));
}

inline std::optional<model::Precision> precision_of(const std::string& option) {
  if (option.empty()) return std::nullopt;
  return option == "int8" ? model::Precision::int8 : model::Precision::f32;
}

}  // namespace regard::cli
