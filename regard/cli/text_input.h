#pragma once

#include <functional>
#include <string>

#include <CLI/CLI.hpp>

// Where a verb's text comes from: an argument, --file FILE, or standard input ("-", or nothing while
// something is piped in).
namespace regard::cli {

struct TextInput {
  std::string argument;
  std::string file;

  void add_to(CLI::App& verb, const std::string& what);

  // The whole text; one line end at its end is dropped. Throws std::invalid_argument when none was given or
  // both were, io::Error for a file that can't be read.
  std::string text() const;

  // Calls with each line and its number from 1, without reading all of the input first.
  void lines(const std::function<void(const std::string& line, size_t number)>& each) const;
};

// The string of a JSON line; throws std::invalid_argument naming the line.
std::string json_line_string(const std::string& line, size_t number);

}  // namespace regard::cli
