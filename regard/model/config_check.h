#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "regard/model/config.h"

// What a configuration must keep to whatever kind of file it was read from. All refusals are io::Error and
// name the file.
namespace regard::model {

// Far above any published model, far below what would overflow or exhaust memory by itself.
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 26;
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;
inline constexpr double kMaxEpsilon = 0.1;
inline constexpr double kMaxBase = 1e12;

[[noreturn]] void refuse_architecture(const std::string& source, const std::string& field,
                                      std::string_view got);

// kv_heads divide heads, and a head that is rotated is even. The fields are named as the file names them.
void check_heads(const TransformerConfig& config, const std::string& source, const std::string& heads_field,
                 const std::string& kv_field);

// width / heads, which must be whole.
int64_t head_size_of(const std::string& source, int64_t width, int64_t heads, const std::string& heads_field);

}  // namespace regard::model
