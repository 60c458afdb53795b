#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/version.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/cli/output.h"
#include "regard/cli/verbs.h"
#include "regard/io/suggest.h"
#include "regard/kernel/parallel.h"
#include "regard/kernel/targets.h"

// The program: registers the verbs, turns what they throw into one sentence and an exit code.
// 0 done, 1 failed, 2 used wrongly. Results go to standard output, everything else to standard error.
namespace {

constexpr int kFailed = 1;
constexpr int kUsedWrongly = 2;

int report(int code, const std::string& message) {
  std::cerr << "regard: " << message << '\n';
  return code;
}

// The verb that was typed, or the program itself.
CLI::App* chosen(CLI::App& app) {
  CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return at;
}

// Every option also comes from REGARD_<OPTION>; the command line wins.
void name_environment(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames().front() == "help") continue;
    std::string name = "REGARD_";
    for (const char c : option->get_lnames().front())
      name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
    if (option->get_envname().empty()) option->envname(name);
  }
  for (CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) name_environment(*verb);
}

std::string explain_unknown(CLI::App& app, const std::string& word) {
  CLI::App* verb = chosen(app);
  std::vector<std::string> known;
  const bool is_option = word.starts_with("-");
  if (is_option) {
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  } else {
    for (const CLI::App* sub : verb->get_subcommands([](CLI::App*) { return true; }))
      known.push_back(sub->get_name());
  }
  const std::string name = verb == &app ? "regard" : "regard " + verb->get_name();
  std::string message = is_option ? "unknown option '" + word + "'"
                        : verb == &app
                            ? "unknown verb '" + word + "'"
                            : "one argument too many: '" + word + "' (quote a text of several words)";
  const std::string near = regard::io::suggest(word, known);
  message += near.empty() ? "." : "; did you mean '" + near + "'?";
  return message + " See '" + name + " --help'.";
}

std::string version() {
  std::string text =
      "regard 0.1.0\nkernels: " + regard::kernel::active_target() + " in use; this machine runs";
  for (const std::string& name : regard::kernel::runnable_targets()) text += " " + name;
  text += "; compiled";
  for (const std::string& name : regard::kernel::compiled_targets()) text += " " + name;
  return text + "\nlibtorch: " + TORCH_VERSION;
}

// Standard output may be a full disk or a closed pipe; a closed pipe (`| head`) is no failure worth a word.
int finish(int code) {
  std::cout.flush();
  if ((std::cout.good() && std::fflush(stdout) == 0) || code != 0) return code;
  errno = 0;
  // The stream only knows that it failed, maybe long ago: one more byte tells why.
  if (write(STDOUT_FILENO, "\n", 1) == 1) errno = EIO;
  return errno == EPIPE ? kFailed : report(kFailed, std::string("standard output: ") + std::strerror(errno));
}

int run(int argc, char** argv) {
  CLI::App app("Regard: self-attention computed fast, run in real models, and looked into.", "regard");
  app.footer(
      "Try: regard look \"The animal didn't cross the street because it was too tired\"\n"
      "Every option is also an environment variable: --model is REGARD_MODEL. Exit codes: 0 done, 1 failed, "
      "2 used wrongly.");
  app.require_subcommand(1);
  app.set_version_flag("--version", version, "Print the version, the kernels' instruction sets, and exit");
  int threads = 0;
  std::string isa;
  app.add_option("--threads", threads, "Threads to use (default: one per usable core)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--isa", isa, "Force the kernels' instruction set (see --version)");
  app.fallthrough();

  using namespace regard::cli;
  add_look(app);
  add_run(app);
  add_translate(app);
  add_embed(app);
  add_tokens(app);
  add_score(app);
  add_models(app);
  add_train(app);
  add_eval(app);
  add_data(app);
  add_explain(app);
  add_bench(app);
  name_environment(app);

  // Runs once options are read and before the verb's callback.
  app.parse_complete_callback([&] {
    if (threads > 0) {
      setenv("REGARD_THREADS", std::to_string(threads).c_str(), 1);
      at::set_num_threads(threads);
    }
    if (!isa.empty()) regard::kernel::select_target(isa);
  });

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForAllHelp& e) {
    return app.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return app.exit(e);
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> extras = app.remaining(true);
    return report(kUsedWrongly, explain_unknown(app, extras.empty() ? "" : extras.front()));
  } catch (const CLI::RequiredError&) {
    const std::vector<std::string> extras = app.remaining(true);
    if (!extras.empty()) return report(kUsedWrongly, explain_unknown(app, extras.front()));
    std::cerr << app.help();
    return kUsedWrongly;
  } catch (const CLI::ParseError& e) {
    return report(kUsedWrongly, std::string(e.what()));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return finish(run(argc, argv));
  } catch (const regard::cli::OutputFailed&) {
    return finish(0);
  } catch (const std::invalid_argument& e) {
    return finish(report(kUsedWrongly, e.what()));
  } catch (const c10::Error& e) {
    return finish(report(kFailed, std::string("libtorch: ") + e.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return finish(report(kFailed, "not enough memory"));
  } catch (const std::exception& e) {
    return finish(report(kFailed, e.what()));
  }
}
