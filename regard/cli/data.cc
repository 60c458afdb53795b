#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "regard/cli/progress.h"
#include "regard/cli/terminal.h"
#include "regard/cli/verbs.h"
#include "regard/io/error.h"
#include "regard/train/data_sets.h"

// data: the sets that the documents speak of; how to have them.
namespace regard::cli {
namespace {

using Json = nlohmann::ordered_json;
using train::DataSet;
using train::Origin;

struct Data {
  std::string name;
  std::string out;
  std::string from;
  uint64_t seed = train::kSeed;
  bool yes = false;
  bool json = false;
};

Json as_json(const DataSet& set) {
  return {{"name", set.name},
          {"what", set.what},
          {"origin", train::name(set.origin)},
          {"size", set.size},
          {"licence", set.licence},
          {"attribution", set.attribution},
          {"address", set.address},
          {"preparation", set.preparation}};
}

std::string how_to(const DataSet& set) {
  switch (set.origin) {
    case Origin::made:
      return set.address;
    case Origin::package:
    case Origin::system:
      return "regard data get " + set.name;
    case Origin::web:
      return "regard data get " + set.name + " --from FILE";
    case Origin::as_is:
      return "regard data get " + set.name + "  (says where it is)";
  }
  return "";
}

void print_facts(const Terminal& terminal, const DataSet& set, std::ostream& out) {
  const auto line = [&](const std::string& name, const std::string& value) {
    if (value.empty()) return;
    for (const std::string& part : wrap(terminal, name + ": " + value, terminal.width, 4, 2))
      out << part << '\n';
  };
  if (set.origin != Origin::made) line("from", set.address);
  line("licence", set.licence);
  line("attribution", set.attribution);
  line("preparation", set.preparation);
}

void list(const Data& options) {
  if (options.json) {
    Json all = Json::array();
    for (const DataSet& set : train::data_sets()) all.push_back(as_json(set));
    std::cout << all.dump(2) << '\n';
    return;
  }
  const Terminal terminal = Terminal::detect(STDOUT_FILENO);
  bool others = false;
  for (const DataSet& set : train::data_sets()) {
    if (set.origin == Origin::as_is && !others) {
      others = true;
      std::cout << "\nOther sets that the documents name; their files are read as they are:\n";
    }
    std::cout << terminal.ink(set.name, Ink::bold) << ": " << set.what << " (" << set.size << "; "
              << train::name(set.origin) << ")\n  " << how_to(set) << '\n';
    print_facts(terminal, set, std::cout);
  }
}

void report(const Data& options, const DataSet& set, const std::vector<std::filesystem::path>& files) {
  if (options.json) {
    Json json = {{"name", set.name},
                 {"licence", set.licence},
                 {"attribution", set.attribution},
                 {"files", Json::array()}};
    for (const auto& file : files) json["files"].push_back(file.string());
    std::cout << json.dump() << '\n';
    return;
  }
  for (const auto& file : files) std::cout << file.string() << '\n';
}

std::filesystem::path folder_of(const Data& options) {
  return options.out.empty() ? std::filesystem::path(options.name) : std::filesystem::path(options.out);
}

void make(const Data& options) {
  const DataSet& set = train::data_set(options.name);
  report(options, set, train::make(set, folder_of(options), options.seed));
}

void ask(const DataSet& set) {
  const io::Wheel& wheel = train::digits_wheel();
  if (io::wheel_is_downloaded(wheel)) return;
  if (isatty(STDIN_FILENO) == 0)
    throw std::invalid_argument(
        "nobody can be asked, since standard input is no terminal: add --yes to download '" + set.name + "'");
  std::cerr << "Download " << (wheel.size + 500'000) / 1'000'000 << " MB from " << io::shown_index()
            << "? [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  if (answer != "y" && answer != "Y" && answer != "yes")
    throw io::Error("'" + set.name + "' was not downloaded, as you said no");
}

void get(const Data& options) {
  const DataSet& set = train::data_set(options.name);
  if (set.origin == Origin::made)
    throw std::invalid_argument("'" + set.name + "' is " + train::name(set.origin) + ": " + set.address);
  print_facts(Terminal::detect(STDERR_FILENO), set, std::cerr);
  if (set.origin == Origin::as_is)
    throw std::invalid_argument("'" + set.name + "' is " + train::name(set.origin) +
                                "; its address and licence stand above");
  if (set.origin == Origin::web) {
    if (options.from.empty())
      throw std::invalid_argument("'" + set.name + "' is " + train::name(set.origin) +
                                  ": download it from the address above, then 'regard data get " + set.name +
                                  " --from FILE'");
    report(options, set, train::prepare(set, options.from, folder_of(options), options.seed));
    return;
  }
  if (set.origin == Origin::package && !options.yes) ask(set);
  Progress progress("downloading " + set.name, "kB");
  report(options, set, train::get(set, folder_of(options), options.from, [&](uint64_t done, uint64_t total) {
           progress.update(static_cast<int64_t>(done / 1000), static_cast<int64_t>(total / 1000));
         }));
}

}  // namespace

void add_data(CLI::App& app) {
  auto options = std::make_shared<Data>();
  CLI::App* data = app.add_subcommand("data", "The data sets of the documents: list, make, get");
  data->footer("Example: regard data make shapes --out shapes");
  data->require_subcommand(1);
  const auto common = [&](CLI::App* verb, const char* about) {
    verb->add_option("name", options->name, "A name from 'regard data list'")->required()->type_name("NAME");
    verb->add_option("--out", options->out, "Folder to write to (default: the set's name)")
        ->type_name("FOLDER");
    verb->add_option("--seed", options->seed, about)->capture_default_str();
    verb->add_flag("--json", options->json, "Print JSON");
  };
  CLI::App* list_verb = data->add_subcommand("list", "What there is: size, licence, how to have it");
  list_verb->footer("Example: regard data list --json");
  list_verb->add_flag("--json", options->json, "Print JSON");
  CLI::App* make_verb = data->add_subcommand("make", "Generate a set from a seed");
  make_verb->footer("Example: regard data make shapes --seed 1");
  common(make_verb, "Another seed, another set");
  CLI::App* get_verb =
      data->add_subcommand("get", "A set from a package, or from a file that was downloaded");
  get_verb->footer("Example: regard data get tatoeba-en-fr --from fra.txt");
  common(get_verb, "Which sentences go to valid and test");
  get_verb
      ->add_option("--from", options->from,
                   "What was downloaded: a text file, or a folder of a package's files")
      ->type_name("PATH");
  get_verb->add_flag("--yes,-y", options->yes, "Do not ask");
  data->callback([options, list_verb, make_verb] {
    if (list_verb->parsed()) {
      list(*options);
    } else if (make_verb->parsed()) {
      make(*options);
    } else {
      get(*options);
    }
  });
}

}  // namespace regard::cli
