// The checks around nlohmann's event parser that every reader of JSON in this room shares. Not for other
// rooms.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace regard::io {

// Receives the values of one JSON text, one after the other, without a tree. run() refuses what is not JSON
// by the letter: a byte order mark, a NUL, invalid UTF-8, lone surrogates, nesting below kMaxJsonDepth, text
// after the value.
class JsonEvents : private nlohmann::json_sax<nlohmann::json> {
 public:
  JsonEvents(std::string_view text, const std::string& source) : text_(text), source_(source) {}
  ~JsonEvents() override = default;

  void run();  // throws Error

 protected:
  virtual void on_null() = 0;
  virtual void on_bool(bool value) = 0;
  virtual void on_integer(int64_t value) = 0;    // negative numbers only
  virtual void on_unsigned(uint64_t value) = 0;  // whole numbers from 0 up
  virtual void on_float(double value) = 0;       // all others, also whole numbers too large for the two above
  virtual void on_string(std::string& value) = 0;
  virtual void on_key(std::string& value) = 0;
  virtual void on_object_begin() = 0;
  virtual void on_object_end() = 0;
  virtual void on_array_begin() = 0;
  virtual void on_array_end() = 0;

  int depth() const { return depth_; }  // 1 inside the outermost object or array

  // Throws Error with the place where the parser stands.
  [[noreturn]] void refuse(std::string_view what) const;

 private:
  class Cursor;

  bool null() final { return on_null(), true; }
  bool boolean(bool value) final { return on_bool(value), true; }
  bool number_integer(int64_t value) final { return on_integer(value), true; }
  bool number_unsigned(uint64_t value) final { return on_unsigned(value), true; }
  bool number_float(double value, const std::string&) final { return on_float(value), true; }
  bool string(std::string& value) final { return on_string(value), true; }
  bool binary(nlohmann::json::binary_t&) final { return false; }
  bool key(std::string& value) final { return on_key(value), true; }
  bool start_object(size_t) final;
  bool end_object() final;
  bool start_array(size_t) final;
  bool end_array() final;
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::json::exception& error) final;

  std::string_view text_;
  const std::string& source_;
  const char* position_ = nullptr;
  int depth_ = 0;
};

}  // namespace regard::io
