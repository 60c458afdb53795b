#include "regard/cli/text_input.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "regard/io/error.h"

namespace regard::cli {
namespace {

bool from_standard_input(const TextInput& input) {
  if (!input.argument.empty() && !input.file.empty()) {
    throw std::invalid_argument("the text was given twice, as an argument and by --file " + input.file);
  }
  if (input.file == "-" || (input.argument == "-" && input.file.empty())) return true;
  if (!input.argument.empty() || !input.file.empty()) return false;
  if (isatty(STDIN_FILENO) != 0)
    throw std::invalid_argument("no text was given: put it in quotes, name --file FILE, or pipe it in");
  return true;
}

// Any readable file, also a pipe such as <(command).
std::ifstream open_text(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw io::Error(path + ": is a folder, not a text file");
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw io::Error(path + ": " + std::strerror(errno));
  return stream;
}

void drop_line_end(std::string& text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
}

}  // namespace

void TextInput::add_to(CLI::App& verb, const std::string& what) {
  verb.add_option("text", argument, what + " ('-': standard input)");
  verb.add_option("--file", file, "Read it from FILE ('-': standard input)")->type_name("FILE");
}

std::string TextInput::text() const {
  std::string text;
  if (from_standard_input(*this)) {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else if (!file.empty()) {
    std::ifstream stream = open_text(file);
    text.assign(std::istreambuf_iterator<char>(stream), {});
  } else {
    return argument;
  }
  drop_line_end(text);
  return text;
}

void TextInput::lines(const std::function<void(const std::string&, size_t)>& each) const {
  std::ifstream opened;
  std::istream* stream = &std::cin;
  if (!from_standard_input(*this)) {
    if (file.empty()) return each(argument, 1);
    opened = open_text(file);
    stream = &opened;
  }
  std::string line;
  for (size_t number = 1; std::getline(*stream, line); ++number) {
    drop_line_end(line);
    each(line, number);
  }
}

std::string json_line_string(const std::string& line, size_t number) {
  try {
    auto value = nlohmann::json::parse(line);
    if (value.is_string()) return value.get<std::string>();
  } catch (const nlohmann::json::parse_error&) {
  }
  throw std::invalid_argument("line " + std::to_string(number) +
                              " is not a JSON string, which --jsonl wants on each line");
}

}  // namespace regard::cli
