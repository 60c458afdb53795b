#pragma once

#include <charconv>
#include <span>
#include <string>

namespace regard::cli {

// The shortest text that reads back as the same float32.
inline void append_number(std::string& out, float value) {
  char buffer[32];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

inline std::string json_array(std::span<const float> values) {
  std::string out = "[";
  for (const float value : values) {
    if (out.size() > 1) out += ',';
    append_number(out, value);
  }
  return out + "]";
}

}  // namespace regard::cli
