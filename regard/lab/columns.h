#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

#include "regard/lab/experiment.h"

// Short words for tables and sentences.
namespace regard::lab {

inline Column text(std::string name) {
  return {std::move(name), Column::Type::text};
}
inline Column count(std::string name) {
  return {std::move(name), Column::Type::count};
}
inline Column number(std::string name, int digits = -1) {
  return {std::move(name), Column::Type::number, digits};
}

// printf into a string.
[[gnu::format(printf, 1, 2)]] inline std::string say(const char* format, ...) {
  char buffer[1024];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

}  // namespace regard::lab
