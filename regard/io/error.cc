#include "regard/io/error.h"

#include <system_error>

namespace regard::io {

void fail(std::string_view source, std::string_view what) {
  throw Error(std::string(source) + ": " + std::string(what));
}

void fail_at(std::string_view source, std::string_view what, uint64_t offset) {
  throw Error(std::string(source) + ": " + std::string(what) + " (offset " + std::to_string(offset) + ")");
}

void fail_errno(std::string_view path, std::string_view what, int error_number) {
  throw Error(std::string(path) + ": " + std::string(what) + ": " +
              std::generic_category().message(error_number));
}

std::string quoted(std::string_view text, size_t limit) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      result += "\\x";
      result += digits[byte >> 4];
      result += digits[byte & 15];
    } else {
      result += c;
    }
  }
  if (text.size() > limit) result += "...";
  return result + "\"";
}

}  // namespace regard::io
