#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "regard/io/atomic_file.h"
#include "regard/io/error.h"
#include "regard/train/prepare_text.h"

namespace regard::train {
namespace {

// A folder that goes with what is in it.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "regard-opencc-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) io::fail_errno(name, "cannot be created", errno);
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

constexpr const char* kAbsent =
    "the program opencc, which turns traditional into simplified Chinese, is not installed: on Debian "
    "'apt-get install "
    "opencc'";

}  // namespace

std::string simplified(std::string_view text) {
  const Scratch scratch;
  std::string in = scratch.file("in"), out = scratch.file("out");
  io::write_file_atomically(in, text);
  std::string program = "opencc", config_flag = "-c", config = "t2s.json", in_flag = "-i", out_flag = "-o";
  char* const arguments[] = {program.data(), config_flag.data(), config.data(), in_flag.data(),
                             in.data(),      out_flag.data(),    out.data(),    nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, program.c_str(), nullptr, nullptr, arguments, environ);
  if (error == ENOENT) throw io::Error(kAbsent);
  if (error != 0) io::fail_errno("opencc", "cannot be started", error);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) throw io::Error(kAbsent);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw io::Error("opencc: ended without having converted the text");
  std::ifstream file(out, std::ios::binary);
  if (!file) throw io::Error("opencc: wrote no result");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace regard::train
