// The reference cases under tests/golden and the models they were made with.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/text/encoding.h"

namespace regard::text {

inline void PrintTo(const Span& span, std::ostream* out) {
  *out << span.begin << ".." << span.end;
}

// One JSON object a line of tests/golden/NAME.
inline std::vector<nlohmann::json> golden_lines(const std::string& name) {
  std::ifstream file(std::filesystem::path(REGARD_GOLDEN_DIR) / name);
  if (!file) throw std::runtime_error("cannot open the golden file " + name);
  std::vector<nlohmann::json> out;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) out.push_back(nlohmann::json::parse(line));
  return out;
}

// The whole of tests/golden/NAME.
inline std::string golden_text(const std::string& name) {
  std::ifstream file(std::filesystem::path(REGARD_GOLDEN_DIR) / name);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Where `regard models get` puts models.
inline std::filesystem::path model_path(const std::string& name) {
  if (const char* cache = std::getenv("REGARD_CACHE")) return std::filesystem::path(cache) / "models" / name;
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home ? home : "") / ".cache/regard/models" / name;
}

inline std::vector<TokenId> ids_of(const nlohmann::json& ids) {
  return ids.get<std::vector<TokenId>>();
}

// The ranges of code points of `text` as ranges of bytes.
inline std::vector<Span> byte_spans(const nlohmann::json& spans, const std::string& text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); ++at)
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80) starts.push_back(at);
  starts.push_back(text.size());
  std::vector<Span> out;
  for (const auto& span : spans) out.push_back({starts.at(span[0]), starts.at(span[1])});
  return out;
}

}  // namespace regard::text

// In a test: goes on only where the model is installed.
#define REGARD_NEEDS_MODEL(name, path)                                                                \
  if (!std::filesystem::exists(path))                                                                 \
  GTEST_SKIP() << "the model " name " is not installed at " << (path) << "; `regard models get " name \
               << "` installs it"
