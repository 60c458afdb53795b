// Files that are either there and whole or not there at all, whatever fails or whoever pulls the plug.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace regard::io {

// Written to a temporary file in the same folder; commit() syncs it to the disk, renames it over `path` and
// syncs the folder. Without commit() nothing is left behind and an older file stays as it was. Links are
// followed (the target is replaced, the link stays); a device or pipe such as /dev/stdout is written to
// directly. The mode follows the umask. Every failure is an Error that names the path and the reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  [[noreturn]] void give_up(std::string_view what, int error_number);
  void discard() noexcept;

  std::string shown_path_;       // as the caller gave it
  std::filesystem::path final_;  // links resolved
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  bool direct_ = false;
};

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Removes the temporary files that a killed process left in `folder`; those of living writers (they hold a
// lock) stay. Returns how many were removed.
size_t remove_orphans(const std::filesystem::path& folder);

}  // namespace regard::io
