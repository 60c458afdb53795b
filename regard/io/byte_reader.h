// Reads a binary file from front to back and never past its end. For sources of this room only.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "regard/io/error.h"

namespace regard::io {

class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  uint64_t offset() const { return offset_; }
  uint64_t left() const { return bytes_.size() - offset_; }

  // `what` names the thing in the error, "key 3".
  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > left()) {
      refuse(std::string(what) + " needs " + std::to_string(count) + " bytes, but only " +
             std::to_string(left()) + " are left in the file");
    }
    const auto part = bytes_.subspan(offset_, count);
    offset_ += count;
    return part;
  }

  std::string_view text(uint64_t count, std::string_view what) {
    const auto part = take(count, what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  [[noreturn]] void refuse(std::string_view what) const { fail_at(source_, what, offset_); }

 private:
  std::span<const std::byte> bytes_;
  const std::string& source_;
  uint64_t offset_ = 0;
};

}  // namespace regard::io
