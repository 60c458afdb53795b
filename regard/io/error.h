// What goes wrong with files and their contents: one sentence that names the file, what is wrong and where.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace regard::io {

// A file, a resource or the contents of a file is at fault (a caller's mistake is std::invalid_argument
// instead).
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Error("source: what").
[[noreturn]] void fail(std::string_view source, std::string_view what);

// Throws Error("source: what (offset N)"); the offset counts bytes from the start of the file.
[[noreturn]] void fail_at(std::string_view source, std::string_view what, uint64_t offset);

// Throws Error("path: what: No such file or directory") with the words for `error_number`, an errno.
[[noreturn]] void fail_errno(std::string_view path, std::string_view what, int error_number);

// Text from an untrusted file made fit for a message: in quotes, control and non-ASCII bytes written \xNN,
// cut after `limit` bytes.
std::string quoted(std::string_view text, size_t limit = 64);

}  // namespace regard::io
