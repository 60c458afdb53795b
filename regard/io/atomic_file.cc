#include "regard/io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "regard/io/error.h"

namespace regard::io {
namespace {

// ".NAME.regard-PID-COUNT.tmp": hidden, unique in this process, recognisable as an orphan.
constexpr std::string_view kMark = ".regard-";
constexpr std::string_view kEnding = ".tmp";

std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  static std::atomic<uint64_t> counter{0};
  // File names end at 255 bytes; the mark needs room.
  const std::string name = path.filename().string().substr(0, 180);
  return path.parent_path() / ("." + name + std::string(kMark) + std::to_string(::getpid()) + "-" +
                               std::to_string(counter++) + std::string(kEnding));
}

int open_retrying(const char* path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = ::open(path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

int sync_retrying(int fd) {
  int result;
  do {
    result = ::fsync(fd);
  } while (result != 0 && errno == EINTR);
  return result;
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path) : shown_path_(path.string()), final_(path) {
  if (path.filename().empty()) fail(shown_path_, "is not the name of a file");
  std::error_code ignored;
  struct stat status;
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) fail(shown_path_, "cannot be written: it is a folder");
    direct_ = !S_ISREG(status.st_mode);
  }
  if (std::filesystem::is_symlink(path, ignored)) {
    final_ = std::filesystem::weakly_canonical(path, ignored);
    if (ignored) fail(shown_path_, "cannot be written: " + ignored.message());
  }
  if (direct_) {
    descriptor_ = open_retrying(path.c_str(), O_WRONLY);
    if (descriptor_ < 0) fail_errno(shown_path_, "cannot be opened for writing", errno);
    return;
  }
  // A name left by a killed process with the same number is passed over.
  for (int attempt = 0; attempt < 100 && descriptor_ < 0; ++attempt) {
    temporary_ = temporary_beside(final_);
    descriptor_ = open_retrying(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) fail_errno(shown_path_, "cannot be written: no temporary file in its folder", errno);
  // The lock tells remove_orphans() that this file's writer lives. Where locks are not supported, it is only
  // that.
  ::flock(descriptor_, LOCK_EX | LOCK_NB);
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::give_up(std::string_view what, int error_number) {
  discard();
  fail_errno(shown_path_, what, error_number);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) fail(shown_path_, "cannot be written: it was committed or given up already");
  while (!bytes.empty()) {
    // Linux takes at most 2 GiB at once anyway; a short write just goes on.
    const ssize_t written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), size_t{1} << 30));
    if (written < 0) {
      if (errno == EINTR) continue;
      give_up("cannot be written", errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::commit() {
  if (descriptor_ < 0) fail(shown_path_, "cannot be committed: it was committed or given up already");
  if (!direct_ && sync_retrying(descriptor_) != 0) give_up("cannot be synced to the disk", errno);
  // After EINTR from close the descriptor is gone on Linux; closing again could hit someone else's.
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0 && errno != EINTR) give_up("cannot be closed", errno);
  if (direct_) return;
  if (::rename(temporary_.c_str(), final_.c_str()) != 0) give_up("cannot be renamed into place", errno);
  temporary_.clear();

  const std::filesystem::path parent = final_.parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const int folder_fd = open_retrying(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (folder_fd < 0) {
    // A folder that may be written but not read cannot be synced; the file itself is in place and whole.
    if (errno == EACCES) return;
    fail_errno(shown_path_, "its folder cannot be opened to sync it", errno);
  }
  const int synced = sync_retrying(folder_fd);
  const int error_number = errno;
  ::close(folder_fd);
  // Some file systems refuse to sync a folder; that is their way to say that there is nothing to do.
  if (synced != 0 && error_number != EINVAL && error_number != ENOTSUP) {
    fail_errno(shown_path_, "its folder cannot be synced to the disk", error_number);
  }
}

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

size_t remove_orphans(const std::filesystem::path& folder) {
  size_t removed = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with('.') || !name.ends_with(kEnding) || name.find(kMark) == std::string::npos) continue;
    if (entry.is_symlink() || !entry.is_regular_file()) continue;
    const int fd = open_retrying(entry.path().c_str(), O_RDONLY | O_NOFOLLOW);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0 && ::unlink(entry.path().c_str()) == 0) ++removed;
    ::close(fd);
  }
  if (error) fail(folder.string(), "cannot be listed: " + error.message());
  return removed;
}

}  // namespace regard::io
