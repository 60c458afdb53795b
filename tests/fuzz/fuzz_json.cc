#include "regard/io/error.h"
#include "regard/io/json.h"
#include "tests/fuzz/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace regard;
  const std::string_view text = fuzz::as_text(data, size);
  io::Json value;
  try {
    value = io::parse_json(text, "input");
  } catch (const io::Error&) {
    return 0;
  }
  // We are stricter than the library, never laxer, and what we read can be written and read again.
  fuzz::require(io::Json::parse(text) == value);
  fuzz::require(io::parse_json(value.dump(), "written") == value);
  if (!value.is_object()) return 0;
  for (const auto& [field, content] : value.items()) {
    io::describe(content);
    try {
      io::int_or(value, field, 1, 0, 1000);
      io::number_or(value, field, 1, 0, 1);
    } catch (const io::Error&) {
    }
  }
  return 0;
}
