#include "regard/cli/look_output.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "regard/cli/look_map.h"
#include "regard/cli/look_print.h"
#include "regard/io/atomic_file.h"
#include "regard/lens/form.h"
#include "regard/lens/qkv_file.h"
#include "regard/lens/trace.h"
#include "regard/web/page.h"

namespace regard::cli {
namespace {

// The head and the position that --trace means.
lens::Trace traced(const Look& options, const Seen& seen) {
  const auto& heads = seen.report.focus.heads;
  if (!options.layer && heads.empty())
    throw std::invalid_argument("--trace needs a head: --layer and --head");
  const int64_t layer = options.layer ? *options.layer : heads.front().layer;
  const int64_t head = options.head ? *options.head : heads.front().head;
  const int64_t position = seen.report.units[static_cast<size_t>(seen.report.focus.unit)].first;
  return lens::trace(seen.recording, layer, head, position);
}

// The form of --as over the same queries and keys, with the row of the chosen word in one head.
lens::FormReport compared(const Look& options, const Seen& seen) {
  const lens::Report& report = seen.report;
  // The head that says most, if none was named.
  const std::vector<const lens::FocusHead*> telling = telling_heads(report);
  const lens::FocusHead* best = !telling.empty()             ? telling.front()
                                : report.focus.heads.empty() ? nullptr
                                                             : &report.focus.heads.front();
  const int64_t layer = options.layer     ? *options.layer
                        : best != nullptr ? best->layer
                                          : report.kept_layers.front();
  const int64_t head = options.head ? *options.head : best != nullptr ? best->head : 0;
  seen.recording.at_layer(layer);
  if (head < 0 || head >= seen.recording.heads()) {
    throw std::invalid_argument("--head is " + std::to_string(head) + "; heads are numbered 0 to " +
                                std::to_string(seen.recording.heads() - 1));
  }
  const int64_t row = report.focus.unit < 0 ? 0 : report.units[static_cast<size_t>(report.focus.unit)].first;
  return lens::compare_form(seen.recording, lens::form_choice(options.as), layer, head, row);
}

void print_hints(const Look& options, const lens::Report& report) {
  const Terminal terminal = Terminal::detect(STDOUT_FILENO);
  std::vector<std::string> hints;
  if (report.causal && !options.received && report.focus.unit >= 0) {
    hints.push_back("which later words look at '" + unit_text(report, report.focus.unit) + "': --received");
  }
  const std::vector<const lens::FocusHead*> telling = telling_heads(report);
  if (!telling.empty() && !options.layer) {
    const lens::FocusHead& best = *telling.front();
    hints.push_back("the whole map of a head: --layer " + std::to_string(best.layer) + " --head " +
                    std::to_string(best.head) + "; its arithmetic: --trace");
  }
  if (options.html.empty()) hints.push_back("all heads on a page: --html look.html");
  std::cout << '\n';
  for (const std::string& hint : hints) {
    Line line(terminal);
    line.add("  Next, " + hint, Ink::dim);
    std::cout << line.text() << '\n';
  }
}

void print_text(const Look& options, const Seen& seen) {
  const Terminal terminal = Terminal::detect(STDOUT_FILENO);
  const lens::Report& report = seen.report;
  const bool ascii_text =
      std::all_of(report.text.begin(), report.text.end(), [](char c) { return (c & 0x80) == 0; });
  if (!terminal.unicode && !ascii_text) {
    std::cerr << "regard: the locale is not UTF-8, so '?' stands for other characters (try LC_ALL=C.UTF-8)\n";
  }
  print_header(std::cout, terminal, report);
  if (!options.as.empty()) return print_form(std::cout, terminal, report, compared(options, seen));
  if (options.layer) {
    print_map(std::cout, terminal, seen.recording, report, *options.layer, *options.head);
  } else if (!options.trace) {
    print_grid(std::cout, terminal, report);
  }
  if (options.trace) {
    print_trace(std::cout, terminal, report, traced(options, seen));
  } else {
    print_focus(std::cout, terminal, report);
  }
  if (options.received) print_received(std::cout, terminal, report);
  print_caution(std::cout, terminal);
  print_hints(options, report);
}

void print_json(const Look& options, const Seen& seen) {
  nlohmann::json json = lens::to_json(seen.report);
  if (options.trace) {
    json["trace"] = to_json(traced(options, seen));
  }
  if (!options.as.empty()) json["as"] = to_json(compared(options, seen));
  std::cout << json.dump() << '\n';
}

void print_two(const Look& options, const Seen& seen, const Seen& other) {
  if (options.json) {
    std::cout << nlohmann::json{{"texts", {lens::to_json(seen.report), lens::to_json(other.report)}}}.dump()
              << '\n';
    return;
  }
  const Terminal terminal = Terminal::detect(STDOUT_FILENO);
  print_comparison(std::cout, terminal, seen.report, other.report);
  print_caution(std::cout, terminal);
}

}  // namespace

void show(const Look& options, const Seen& seen, const Seen* other) {
  if (other != nullptr) {
    print_two(options, seen, *other);
  } else if (options.json) {
    print_json(options, seen);
  } else {
    print_text(options, seen);
  }
  std::cout.flush();
}

void write_files(const Look& options, const Seen& seen, const Seen* other) {
  const auto wrote = [](const std::string& path, const std::string& what) {
    std::cerr << path << ": " << what << '\n';
  };
  if (!options.npz.empty()) {
    lens::write_qkv(options.npz, seen.recording);
    wrote(options.npz, "queries, keys, values and log-sum-exp of " +
                           std::to_string(seen.recording.layers.size()) + " layers; look again with --qkv");
  }
  if (!options.png.empty()) {
    if (options.layer) {
      write_map_png(options.png, pooled_map(seen.recording, seen.report, *options.layer, *options.head, 960));
      wrote(options.png, "the map of " + head_name(*options.layer, *options.head) + ", rows look at columns");
    } else {
      write_grid_png(options.png, seen.report);
      wrote(options.png, "the maps of all heads, a row a layer");
    }
  }
  if (!options.html.empty()) {
    io::write_file_atomically(
        options.html, other == nullptr ? web::page(seen.report) : web::page(seen.report, other->report));
    wrote(options.html, "open it in a browser; it needs no network");
  }
}

}  // namespace regard::cli
