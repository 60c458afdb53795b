#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/cli/progress.h"
#include "regard/cli/verbs.h"
#include "regard/io/download.h"
#include "regard/io/error.h"
#include "regard/model/registry.h"

// regard models: the models known by name; `get` installs one, `path` says where it lies.
namespace regard::cli {
namespace {

using model::KnownModel;
using Json = nlohmann::ordered_json;

struct Options {
  bool json = false;
  bool yes = false;
  std::vector<std::string> names;
  std::string name;
};

std::string megabytes(uint64_t bytes) {
  return std::to_string((bytes + 500'000) / 1'000'000) + " MB";
}

Json as_json(const KnownModel& model) {
  return {{"name", model.name},
          {"title", model.title},
          {"task", model.task},
          {"languages", model.languages},
          {"download_bytes", model.wheel.size},
          {"disk_bytes", model.unpacked_bytes},
          {"licence", model.licence},
          {"source", model.source},
          {"installed", model.installed()},
          {"path", model.path().string()}};
}

void list(const Options& options) {
  if (options.json) {
    Json all = Json::array();
    for (const KnownModel& model : model::known_models()) all.push_back(as_json(model));
    std::cout << all.dump(2) << '\n';
    return;
  }
  std::vector<std::vector<std::string>> rows = {
      {"name", "model", "for", "languages", "download", "licence", "source", "installed"}};
  for (const KnownModel& model : model::known_models()) {
    rows.push_back({model.name, model.title, model.task, model.languages, megabytes(model.wheel.size),
                    model.licence, model.source, model.installed() ? "yes" : "no"});
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i)
      std::cout << row[i] << std::string(widths[i] - row[i].size() + 2, ' ');
    std::cout << row.back() << '\n';
  }
  std::cerr
      << "Install one with 'regard models get NAME'; any verb also takes a folder, a GGUF file or ORG/NAME "
         "from the local Hugging Face cache as --model.\n";
}

bool agreed() {
  std::cerr << "Install it? [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

void get_one(const KnownModel& model, const Options& options) {
  bool did = false;
  if (!model.installed()) {
    const bool here = io::wheel_is_downloaded(model.wheel);
    std::cerr << model.name << ": " << model.title << ", licence " << model.licence << ", from "
              << model.source << "; " << megabytes(model.wheel.size)
              << (here ? " lie in the downloads folder already, "
                       : " to download from " + io::shown_index() + ", ")
              << megabytes(model.unpacked_bytes) << " on disk in " << model.folder().string() << '\n';
    if (!options.yes) {
      if (isatty(STDIN_FILENO) == 0)
        throw std::invalid_argument(
            "nobody can be asked, since standard input is no terminal: add --yes to install '" + model.name +
            "'");
      if (!agreed()) throw io::Error("'" + model.name + "' was not installed, as you said no");
    }
    Progress progress("downloading " + model.name, "kB");
    did = model::install(model, [&](uint64_t done, uint64_t total) {
      progress.update(static_cast<int64_t>(done / 1000), static_cast<int64_t>(total / 1000));
    });
  }
  if (options.json) {
    std::cout
        << Json{{"name", model.name}, {"path", model.path().string()}, {"already_installed", !did}}.dump()
        << '\n';
  } else {
    std::cout << model.name << (did ? " is installed: " : " is already installed: ") << model.path().string()
              << '\n';
  }
}

void print_path(const Options& options) {
  const KnownModel& model = model::known_model(options.name);
  const std::string path = model::find_model(model.name).path.string();  // throws where it is not installed
  if (options.json)
    std::cout << Json{{"name", model.name}, {"path", path}}.dump() << '\n';
  else
    std::cout << path << '\n';
}

}  // namespace

void add_models(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* models = app.add_subcommand("models", "List the models known by name; install one");
  models->footer("Example: regard models get smollm2");
  models->add_flag("--json", options->json, "Print JSON");
  models->require_subcommand(0, 1);

  CLI::App* get = models->add_subcommand("get", "Download, check and unpack models");
  get->footer("Example: regard models get e5 --yes");
  get->add_option("names", options->names, "Names from 'regard models'")->required()->type_name("NAME");
  get->add_flag("--yes,-y", options->yes, "Do not ask");
  get->add_flag("--json", options->json, "Print JSON");

  CLI::App* path = models->add_subcommand("path", "Print where an installed model lies");
  path->footer("Example: regard models path minilm");
  path->add_option("name", options->name, "A name from 'regard models'")->required()->type_name("NAME");
  path->add_flag("--json", options->json, "Print JSON");

  models->callback([options, get, path] {
    if (get->parsed()) {
      // All names are looked up before anything is downloaded.
      std::vector<const KnownModel*> wanted;
      for (const std::string& name : options->names) wanted.push_back(&model::known_model(name));
      for (const KnownModel* one : wanted) get_one(*one, *options);
    } else if (path->parsed()) {
      print_path(*options);
    } else {
      list(*options);
    }
  });
}

}  // namespace regard::cli
