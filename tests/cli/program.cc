#include "program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

extern char** environ;

namespace regard::cli::testing {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> environment_of(const How& how) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  std::erase_if(variables, [](const auto& entry) {
    return (entry.first.starts_with("REGARD_") && entry.first != "REGARD_CACHE") ||
           entry.first == "NO_COLOR" || entry.first == "COLUMNS" || entry.first == "COLORTERM";
  });
  variables["LC_ALL"] = "C.UTF-8";
  variables["TERM"] = "xterm-256color";
  for (const auto& [name, value] : how.environment) variables[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : variables) out.push_back(std::string(name).append("=").append(value));
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& string : strings) out.push_back(string.data());
  out.push_back(nullptr);
  return out;
}

struct Pipe {
  int read = -1;
  int write = -1;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  return {ends[0], ends[1]};
}

void close_once(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

// Feeds standard input and collects both outputs at once: a full pipe would stop the program.
void exchange(const std::string& input, int& to, int& out, int& err, Outcome& outcome, pid_t child,
              Clock::time_point end) {
  size_t fed = 0;
  bool killed = false;
  std::array<char, 65536> buffer{};
  const auto collect = [&](int& from, std::string& text) {
    const ssize_t got = ::read(from, buffer.data(), buffer.size());
    if (got > 0) {
      text.append(buffer.data(), static_cast<size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      close_once(from);  // a terminal's other side ends with EIO
    }
  };
  while (out >= 0 || err >= 0) {
    std::array<pollfd, 3> watched{{{out, POLLIN, 0}, {err, POLLIN, 0}, {to, POLLOUT, 0}}};
    ::poll(watched.data(), watched.size(), 200);
    if (watched[0].revents != 0) collect(out, outcome.out);
    if (watched[1].revents != 0) collect(err, outcome.err);
    if (watched[2].revents != 0) {
      const size_t rest = input.size() - fed;
      const ssize_t wrote = rest == 0 ? 0 : ::write(to, input.data() + fed, std::min<size_t>(rest, 4096));
      if (wrote > 0) fed += static_cast<size_t>(wrote);
      if (wrote < 0 || fed == input.size()) close_once(to);
    }
    if (!killed && Clock::now() > end) {
      ::kill(child, SIGKILL);
      killed = true;
    }
  }
  close_once(to);
}

Outcome execute(std::vector<std::string> command, const How& how) {
  std::signal(SIGPIPE, SIG_IGN);
  std::vector<std::string> environment = environment_of(how);
  const std::vector<char*> argv = pointers(command);
  const std::vector<char*> envp = pointers(environment);
  Pipe in = make_pipe();
  Pipe err = make_pipe();
  Pipe out;
  if (!how.output.empty()) {
    out.write = ::open(how.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out.write < 0) throw std::runtime_error(how.output + ": " + std::strerror(errno));
  } else if (how.columns > 0) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(how.columns);
    size.ws_row = 50;
    if (::openpty(&out.read, &out.write, nullptr, nullptr, &size) != 0)
      throw std::runtime_error("no terminal");
    ::fcntl(out.read, F_SETFD, FD_CLOEXEC);
    ::fcntl(out.write, F_SETFD, FD_CLOEXEC);
  } else {
    out = make_pipe();
  }
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    ::dup2(in.read, STDIN_FILENO);
    ::dup2(out.write, STDOUT_FILENO);
    ::dup2(err.write, STDERR_FILENO);
    std::signal(SIGPIPE, SIG_DFL);
    ::execvpe(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  for (int* end : {&in.read, &out.write, &err.write}) close_once(*end);
  Outcome outcome;
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(how.seconds));
  exchange(how.input, in.write, out.read, err.read, outcome, child, Clock::now() + limit);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (how.columns > 0) std::erase(outcome.out, '\r');  // the terminal's own
  return outcome;
}

}  // namespace

Outcome run(const std::vector<std::string>& arguments, const How& how) {
  std::vector<std::string> command{REGARD_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return execute(std::move(command), how);
}

Outcome shell(const std::string& line, const How& how) {
  How with = how;
  // Not REGARD_...: such a variable would be an option.
  with.environment.emplace_back("REGARD", REGARD_PROGRAM);
  return execute({"bash", "-o", "pipefail", "-c", line}, with);
}

bool installed(const std::string& model) {
  static const nlohmann::json models = nlohmann::json::parse(run({"models", "--json"}).out, nullptr, false);
  for (const auto& entry : models) {
    if (entry.is_object() && entry.value("name", "") == model) return entry.value("installed", false);
  }
  return false;
}

std::vector<std::string> complaints(const Outcome& outcome) {
  std::vector<std::string> out = lines_of(outcome.err);
  std::erase_if(out, [](const std::string& line) { return !line.starts_with("regard: "); });
  return out;
}

}  // namespace regard::cli::testing
