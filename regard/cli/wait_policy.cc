#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstddef>
#include <cstring>

// libtorch's OpenMP threads spin while they wait, which costs a third of the time where other programs want
// the cores too. libgomp reads OMP_WAIT_POLICY in a constructor, so it is too late to set it in main(): the
// program starts itself again with OMP_WAIT_POLICY=passive. That happens in .preinit_array, before the
// constructors of any library: it costs milliseconds, whereas those of libtorch take a third of a second.
// A policy that the user gave stays.
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The sanitizers' own start must come first.
#else

constexpr size_t kMaxVariables = 4096;

bool begins(const char* text, const char* with) {
  return std::strncmp(text, with, std::strlen(with)) == 0;
}

// Libraries are mapped and linked here but not initialised: nothing that allocates, nothing that needs errno.
void wait_passively(int, char** argv, char** environment) {
  static char policy[] = "OMP_WAIT_POLICY=passive";
  static char* changed[kMaxVariables + 2];
  size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    if (begins(environment[count], "OMP_WAIT_POLICY=") || count == kMaxVariables) return;
    changed[count] = environment[count];
  }
  changed[count] = policy;
  // The program's path rather than /proc/self/exe: a process is called by the name that it was started with.
  static char program[PATH_MAX];
  const auto length = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", program, sizeof program - 1);
  if (length <= 0) return;
  syscall(SYS_execve, program, argv, changed);
  // Where that is not possible the program goes on as it is.
}

__attribute__((section(".preinit_array"), used)) void (*const at_start)(int, char**, char**) = wait_passively;

#endif

}  // namespace
