// Loaded before the C library (LD_PRELOAD): makes one call on a temporary file of regard::io::AtomicFile
// fail.
//
// WRITER_FAULT names what happens: "write" (the second one fails: no space), "write_first", "write_short"
// (half of it is taken), "write_interrupted" (each second try), "sync", "sync_interrupted", "close",
// "rename", "sync_folder".
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool wanted(const char* fault) {
  const char* asked = std::getenv("WRITER_FAULT");
  return asked != nullptr && std::strcmp(asked, fault) == 0;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

// Whether a descriptor is a temporary file of the writer.
bool is_temporary(int descriptor) {
  char link[64];
  char target[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, target, sizeof target - 1);
  if (length <= 0) return false;
  target[length] = '\0';
  return std::strstr(target, "/.") != nullptr && std::strstr(target, ".regard-") != nullptr;
}

bool is_folder(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
}

int fail(int error) {
  errno = error;
  return -1;
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t count) {
  static int calls = 0;
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  if (!is_temporary(descriptor)) return real(descriptor, bytes, count);
  ++calls;
  if (wanted("write_first") || (wanted("write") && calls > 1)) return fail(ENOSPC);
  if (wanted("write") || wanted("write_short")) return real(descriptor, bytes, (count + 1) / 2);
  if (wanted("write_interrupted") && calls % 2 == 1) return fail(EINTR);
  return real(descriptor, bytes, count);
}

int fsync(int descriptor) {
  static int calls = 0;
  static const auto real = next<int (*)(int)>("fsync");
  if (wanted("sync_folder") && is_folder(descriptor)) return fail(EIO);
  if (wanted("sync") && is_temporary(descriptor)) return fail(EIO);
  if (wanted("sync_interrupted") && ++calls % 2 == 1) return fail(EINTR);
  return real(descriptor);
}

int close(int descriptor) {
  static const auto real = next<int (*)(int)>("close");
  const bool hit = wanted("close") && is_temporary(descriptor);
  const int result = real(descriptor);
  return hit ? fail(EDQUOT) : result;
}

int rename(const char* from, const char* to) {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  if (wanted("rename") && std::strstr(from, ".regard-") != nullptr) return fail(EACCES);
  return real(from, to);
}

}  // extern "C"
