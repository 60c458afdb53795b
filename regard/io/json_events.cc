#include "regard/io/json_events.h"

#include <algorithm>
#include <iterator>

#include "regard/io/error.h"
#include "regard/io/json.h"

namespace regard::io {

// The text's characters; tells its owner how far the parser has read.
class JsonEvents::Cursor {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor() = default;
  Cursor(const char* at, const char** shared) : at_(at), shared_(shared) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    *shared_ = ++at_;
    return *this;
  }
  Cursor operator++(int) {
    const Cursor before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Cursor& other) const { return at_ == other.at_; }

 private:
  const char* at_ = nullptr;
  const char** shared_ = nullptr;
};

void JsonEvents::run() {
  position_ = text_.data();
  if (text_.starts_with("\xef\xbb\xbf")) refuse("JSON must not begin with a byte order mark");
  // The parser would take a NUL for the end of the text.
  if (const size_t nul = text_.find('\0'); nul != std::string_view::npos) {
    position_ = text_.data() + nul;
    refuse("JSON must not hold a NUL byte");
  }
  const char* const end = text_.data() + text_.size();
  nlohmann::json::sax_parse(Cursor(text_.data(), &position_), Cursor(end, &position_),
                            static_cast<nlohmann::json_sax<nlohmann::json>*>(this));
}

void JsonEvents::refuse(std::string_view what) const {
  const std::string_view before = text_.substr(0, static_cast<size_t>(position_ - text_.data()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  fail(source_, std::string(what) + " (line " + std::to_string(line) + ", column " +
                    std::to_string(before.size() - line_start + 1) + ")");
}

bool JsonEvents::start_object(size_t) {
  if (++depth_ > kMaxJsonDepth)
    refuse("JSON is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  on_object_begin();
  return true;
}

bool JsonEvents::end_object() {
  on_object_end();
  --depth_;
  return true;
}

bool JsonEvents::start_array(size_t) {
  if (++depth_ > kMaxJsonDepth)
    refuse("JSON is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  on_array_begin();
  return true;
}

bool JsonEvents::end_array() {
  on_array_end();
  --depth_;
  return true;
}

bool JsonEvents::parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 4: syntax error while ... - reason; last
  // read: 'raw bytes'; expected ...": the reason is what a reader needs, the raw bytes may be anything.
  std::string_view reason = error.what();
  if (const size_t start = reason.find(" - "); start != std::string_view::npos) {
    reason.remove_prefix(start + 3);
  } else if (const size_t bracket = reason.find("] "); bracket != std::string_view::npos) {
    reason.remove_prefix(bracket + 2);
  }
  reason = reason.substr(0, reason.find("; last read"));
  position_ = text_.data() + std::min(position == 0 ? 0 : position - 1, text_.size());
  std::string clean = io::quoted(reason, 120);
  refuse("not valid JSON: " + clean.substr(1, clean.size() - 2));
}

}  // namespace regard::io
