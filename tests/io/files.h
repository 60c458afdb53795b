// Temporary folders and small helpers of this room's tests.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>

namespace regard::io {

// A fresh folder, removed with all it holds when the test ends.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "regard-io-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  size_t entries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_all(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// What `call` says when it throws; empty when it does not.
template <class Failure, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Failure& error) {
    return error.what();
  }
  return {};
}

inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(REGARD_GOLDEN_DIR) / "io" / name;
}

// The folder of an installed model of ours, or an empty path.
inline std::filesystem::path installed_model(const std::string& name) {
  const char* cache = std::getenv("REGARD_CACHE");
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path root;
  if (cache != nullptr) {
    root = cache;
  } else if (xdg != nullptr) {
    root = std::filesystem::path(xdg) / "regard";
  } else if (home != nullptr) {
    root = std::filesystem::path(home) / ".cache" / "regard";
  }
  const std::filesystem::path folder = root / "models" / name;
  return std::filesystem::exists(folder) ? folder : std::filesystem::path();
}

}  // namespace regard::io
