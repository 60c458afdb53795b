// A whole file, read-only, in memory by mmap: nothing is read until it is touched.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace regard::io {

// Move-only; the spans it gives out live as long as it does (moving keeps them valid). A file that another
// process shortens while it is mapped ends this process with SIGBUS, as with every mmap; replacing it by
// rename is safe.
class MappedFile {
 public:
  // Throws Error for a missing file, a folder or anything else that is not a regular file. An empty file is
  // fine.
  static MappedFile open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }

  // Hints to the kernel; they never fail. Both take a part of bytes().
  void will_need(std::span<const std::byte> part) const;
  // Gives the memory of the whole pages inside `part` back; they are read again from the file when next
  // touched.
  void release(std::span<const std::byte> part) const;

 private:
  MappedFile(std::string path, const std::byte* data, size_t size);

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A copy of a whole file. Throws like MappedFile::open().
std::string read_text(const std::filesystem::path& path);

}  // namespace regard::io
