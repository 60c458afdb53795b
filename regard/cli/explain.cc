#include "regard/lab/experiment.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "regard/cli/interrupt.h"
#include "regard/cli/output.h"
#include "regard/cli/terminal.h"
#include "regard/cli/verbs.h"
#include "regard/io/atomic_file.h"
#include "regard/io/error.h"
#include "regard/io/png.h"
#include "regard/lab/plot.h"
#include "regard/text/display.h"

// explain: what the articles say, measured.
namespace regard::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Explain {
  std::string name;
  bool quick = false;
  int64_t seeds = 0;  // 0: 3, or 2 of --quick
  std::string out;
  bool json = false;
};

Ink ink_of(lab::Verdict verdict) {
  switch (verdict) {
    case lab::Verdict::confirmed:
      return Ink::green;
    case lab::Verdict::refuted:
      return Ink::red;
    case lab::Verdict::not_decided:
      return Ink::orange;
  }
  return Ink::plain;
}

void print_wrapped(const Terminal& terminal, const std::string& text, int64_t indent, int64_t first) {
  for (const std::string& line : wrap(terminal, text, terminal.width, indent, first))
    std::cout << terminal.show(line) << '\n';
}

void print_table(const Terminal& terminal, const lab::Table& table) {
  std::cout << '\n';
  for (const std::string& line : wrap(terminal, table.title, terminal.width))
    std::cout << terminal.ink(terminal.show(line), Ink::bold) << '\n';
  const size_t columns = table.columns.size();
  std::vector<std::vector<std::string>> cells;
  std::vector<int64_t> widths;
  for (size_t c = 0; c < columns; ++c) {
    int64_t width = static_cast<int64_t>(text::display_width(table.columns[c].name));
    for (const auto& row : table.rows)
      width =
          std::max(width, static_cast<int64_t>(text::display_width(lab::shown(row[c], table.columns[c]))));
    widths.push_back(width);
  }
  // A heading that is wider than its numbers is broken at spaces, as far as the table is too wide for the
  // terminal.
  std::vector<std::vector<std::string>> headings(columns);
  size_t lines = 1;
  int64_t total = 0;
  for (const int64_t width : widths) total += width + 2;
  for (size_t c = 0; c < columns; ++c) {
    int64_t least = 0;
    for (const auto& row : table.rows)
      least =
          std::max(least, static_cast<int64_t>(text::display_width(lab::shown(row[c], table.columns[c]))));
    headings[c] = {table.columns[c].name};
    if (total > terminal.width) {
      headings[c] = wrap(terminal, table.columns[c].name, std::max<int64_t>(least, 10));
      widths[c] = least;
      for (const std::string& line : headings[c])
        widths[c] = std::max(widths[c], static_cast<int64_t>(text::display_width(line)));
    }
    lines = std::max(lines, headings[c].size());
  }
  const auto print_row = [&](const auto& cell, Ink ink) {
    Line line(terminal);
    for (size_t c = 0; c < columns; ++c) {
      const bool is_text = table.columns[c].type == lab::Column::Type::text;
      line.cell(cell(c), widths[c], is_text ? text::Align::left : text::Align::right, ink);
      if (c + 1 < columns) line.add("  ");
    }
    std::cout << line.text() << '\n';
  };
  for (size_t l = 0; l < lines; ++l) {
    print_row(
        [&](size_t c) {
          const size_t missing = lines - headings[c].size();  // headings stand on the bottom line
          return l < missing ? std::string() : headings[c][l - missing];
        },
        Ink::dim);
  }
  for (const auto& row : table.rows)
    print_row([&](size_t c) { return lab::shown(row[c], table.columns[c]); }, Ink::plain);
}

void print(const Terminal& terminal, const lab::Experiment& experiment, const lab::Result& result,
           const Explain& options, int64_t seeds) {
  std::cout << terminal.ink(experiment.name, Ink::title) << terminal.show(": " + experiment.title) << '\n';
  if (options.quick)
    std::cout << terminal.ink("indicative: --quick measures less and at smaller sizes", Ink::warn) << '\n';
  for (const lab::Table& table : result.tables) print_table(terminal, table);
  for (const lab::Finding& finding : result.findings) {
    std::cout << '\n' << terminal.ink(lab::name(finding.verdict), ink_of(finding.verdict)) << '\n';
    print_wrapped(terminal, "claim: " + finding.claim + " (" + finding.source + ")", 4, 2);
    print_wrapped(terminal, "measured: " + finding.measured, 4, 2);
  }
  if (!result.notes.empty()) std::cout << '\n';
  for (const std::string& note : result.notes) print_wrapped(terminal, note, 0, 0);
  const int threads = at::get_num_threads();
  char text[120];
  std::snprintf(text, sizeof text, "\n%lld %s, %.1f s on %d %s%s\n", static_cast<long long>(seeds),
                seeds == 1 ? "seed" : "seeds", result.seconds, threads, threads == 1 ? "thread" : "threads",
                experiment.trained ? " (models are trained on one)" : "");
  std::cout << text;
}

Json as_json(const lab::Table& table) {
  Json columns = Json::array();
  for (const lab::Column& column : table.columns) columns.push_back(column.name);
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json cells = Json::array();
    for (const lab::Cell& cell : row) std::visit([&](const auto& value) { cells.push_back(value); }, cell);
    rows.push_back(std::move(cells));
  }
  return {{"name", table.name}, {"title", table.title}, {"columns", columns}, {"rows", rows}};
}

Json as_json(const lab::Experiment& experiment, const lab::Result& result, const Explain& options,
             int64_t seeds) {
  Json json = {{"name", experiment.name}, {"title", experiment.title},        {"quick", options.quick},
               {"seeds", seeds},          {"threads", at::get_num_threads()}, {"seconds", result.seconds}};
  for (const lab::Finding& finding : result.findings) {
    json["findings"].push_back({{"claim", finding.claim},
                                {"source", finding.source},
                                {"measured", finding.measured},
                                {"verdict", lab::name(finding.verdict)}});
  }
  for (const lab::Table& table : result.tables) json["tables"].push_back(as_json(table));
  json["notes"] = result.notes;
  return json;
}

// FOLDER/TABLE.csv and FOLDER/NAME.png.
void write(const std::filesystem::path& folder, const lab::Experiment& experiment,
           const lab::Result& result) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) io::fail_errno(folder.string(), "cannot be created", error.value());
  for (const lab::Table& table : result.tables)
    io::write_file_atomically(folder / (table.name + ".csv"), lab::csv(table));
  if (result.plots.empty()) return;
  const io::Canvas canvas = lab::draw(result.plots);
  io::write_png(folder / (experiment.name + ".png"), canvas.width(), canvas.height(), canvas.rgb());
}

void list(const Explain& options) {
  if (options.json) {
    Json all = Json::array();
    for (const lab::Experiment& one : lab::experiments())
      all.push_back({{"name", one.name},
                     {"title", one.title},
                     {"claim", one.claim},
                     {"source", one.source},
                     {"trained", one.trained}});
    std::cout << all.dump(2) << '\n';
    return;
  }
  const Terminal terminal = Terminal::detect(STDOUT_FILENO);
  for (const lab::Experiment& one : lab::experiments()) {
    Line line(terminal);
    line.cell(one.name, 12, text::Align::left, Ink::bold)
        .add(terminal.show(one.title + (one.trained ? " (trains)" : "")));
    std::cout << line.text() << '\n';
    print_wrapped(terminal, "claim: " + one.claim + " (" + one.source + ")", 14, 12);
  }
  std::cerr << "Measure one with 'regard explain NAME'; --quick takes at most 3 minutes.\n";
}

void run(const Explain& options) {
  if (options.name.empty()) {
    list(options);
    return;
  }
  const lab::Experiment& experiment = lab::experiment(options.name);
  lab::Options how;
  how.quick = options.quick;
  how.seeds = options.seeds > 0 ? options.seeds : options.quick ? 2 : 3;
  how.threads = at::get_num_threads();
  const bool terminal_there = isatty(STDERR_FILENO) == 1;
  catch_interrupts();
  how.progress = [&](const std::string& what) {
    if (interrupted()) throw io::Error("interrupted");
    if (terminal_there) std::cerr << "\r\x1b[K" << experiment.name << ": " << what << std::flush;
  };
  const lab::Result result = lab::run(experiment, how);
  if (terminal_there) std::cerr << "\r\x1b[K" << std::flush;
  if (!options.out.empty()) write(options.out, experiment, result);
  if (options.json) {
    std::cout << as_json(experiment, result, options, how.seeds).dump(2) << '\n';
  } else {
    print(Terminal::detect(STDOUT_FILENO), experiment, result, options, how.seeds);
    if (!options.out.empty()) std::cout << "tables and picture: " << options.out << '\n';
  }
}

}  // namespace

void add_explain(CLI::App& app) {
  auto options = std::make_shared<Explain>();
  CLI::App* verb =
      app.add_subcommand("explain", "What the articles say, measured: tables, a picture and a verdict");
  verb->add_option("name", options->name, "An experiment (default: list them)")->type_name("NAME");
  verb->add_flag("--quick", options->quick, "Less and smaller, in at most 3 minutes: indicative");
  verb->add_option("--seeds", options->seeds, "Seeds to measure over (default: 3, or 2 of --quick)")
      ->check(CLI::Range(1, 1000));
  verb->add_option("--out", options->out, "Folder for the tables (CSV) and the picture (PNG)")
      ->type_name("FOLDER");
  verb->add_flag("--json", options->json, "Print JSON");
  verb->footer("Example: regard explain scaling --out scaling");
  verb->callback([options] { run(*options); });
}

}  // namespace regard::cli
