#include "regard/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "regard/io/error.h"

namespace regard::io {
namespace {

struct Descriptor {
  int value;
  ~Descriptor() { ::close(value); }
};

}  // namespace

MappedFile::MappedFile(std::string path, const std::byte* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: a named pipe given as a file must be refused, not waited for.
  int fd;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) fail_errno(path.string(), "cannot be opened", errno);
  const Descriptor descriptor{fd};

  struct stat status;
  if (::fstat(fd, &status) != 0) fail_errno(path.string(), "cannot be examined", errno);
  if (S_ISDIR(status.st_mode)) fail(path.string(), "is a folder, a file was expected");
  if (!S_ISREG(status.st_mode)) fail(path.string(), "is not a regular file");
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return MappedFile(path.string(), nullptr, 0);

  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) fail_errno(path.string(), "cannot be mapped into memory", errno);
  return MappedFile(path.string(), static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::will_need(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(part.data()) / page * page;
  const auto last = reinterpret_cast<uintptr_t>(part.data() + part.size());
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_WILLNEED);
}

void MappedFile::release(std::span<const std::byte> part) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const auto last = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

std::string read_text(const std::filesystem::path& path) {
  return std::string(MappedFile::open(path).text());
}

}  // namespace regard::io
